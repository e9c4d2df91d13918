package main

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// Modes: which of the nodes that pass the filters a replica takes.
const (
	modeFirst    = "first"    // the first by name
	modeLast     = "last"     // the last by name
	modeRandom   = "random"   // any, by the seed
	modeScore    = "score"    // the best by the scoring plugins; of equals one by the seed
	modeSampled  = "sampled"  // the best of as many fitting nodes as the scheduler looks for, from where it left off
	modeExtremes = "extremes" // every sequence of choices is tried: the least and the most replicas that any one ends with
)

// What these plugins refuse once they refuse for ever, for the same pod, as long as pods are only added.
var lasting = sets.New(
	names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity, names.NodePorts,
	names.NodeResourcesFit, names.VolumeBinding, names.VolumeZone, names.VolumeRestrictions,
)

type placement struct {
	Namespace string             `json:"namespace"`
	Template  v1.PodTemplateSpec `json:"template"`
	Replicas  int                `json:"replicas"`
	Mode      string             `json:"mode"`
	Seed      int64              `json:"seed,omitempty"`
	// Name is of the pods, with a number behind it; made up when empty.
	Name string `json:"name,omitempty"`
	// Keep leaves the replicas in the state for what follows.
	Keep bool `json:"keep,omitempty"`
	// Sequence asks for the node of each replica in order, Pod for the pod as admitted.
	Sequence bool `json:"sequence,omitempty"`
	Pod      bool `json:"pod,omitempty"`
	// StatesMax bounds mode extremes.
	StatesMax int `json:"statesMax,omitempty"`
}

type refusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// placed: Nodes counts replicas by node. Refused says of each node why the first replica that found none did not fit;
// empty when all found one. Least and Most are of mode extremes, Count is then Least.
type placed struct {
	Count    int                `json:"count"`
	Nodes    map[string]int     `json:"nodes,omitempty"`
	Refused  map[string]refusal `json:"refused,omitempty"`
	Sequence []string           `json:"sequence,omitempty"`
	Pod      *v1.Pod            `json:"pod,omitempty"`
	Least    *int               `json:"least,omitempty"`
	Most     *int               `json:"most,omitempty"`
	Error    string             `json:"error,omitempty"`
}

// run is one placement under way. closed: nodes that take no more of this pod; nil where replicas are taken back.
type run struct {
	*oracle
	asked  *placement
	pod    *v1.Pod
	name   string
	chance *rand.Rand
	closed map[string]refusal
	added  []*v1.Pod
}

// Of clusters above this size the scheduler looks for fewer fitting nodes than there are.
const sampleFromNodes = 100

func enough(nodes int) int {
	percent := max(5, 50-nodes/125)
	return max(sampleFromNodes, nodes*percent/100)
}

// candidates: the nodes in the order in which they are tried, and how many that fit are enough.
func (r *run) candidates() ([]fwk.NodeInfo, int) {
	nodes := r.view.now.nodes
	switch r.asked.Mode {
	case modeFirst, "":
		return nodes, 1
	case modeLast:
		backwards := slices.Clone(nodes)
		slices.Reverse(backwards)
		return backwards, 1
	case modeSampled:
		if len(nodes) < sampleFromNodes {
			return nodes, len(nodes)
		}
		start := r.nextStart % len(nodes)
		return slices.Concat(nodes[start:], nodes[:start]), enough(len(nodes))
	}
	return nodes, len(nodes)
}

func (o *oracle) place(asked *placement) (placed, error) {
	o.placed++
	name := asked.Name
	if name == "" {
		name = fmt.Sprintf("placed-%d", o.placed)
	}
	given := &v1.Pod{ObjectMeta: *asked.Template.ObjectMeta.DeepCopy(), Spec: asked.Template.Spec}
	given.ObjectMeta.Name, given.ObjectMeta.Namespace = name, asked.Namespace
	given.ObjectMeta.GenerateName = ""
	given.ObjectMeta.CreationTimestamp = metav1.Time{}
	pod, err := o.admit(given)
	if err != nil {
		return placed{}, err
	}
	r := &run{o, asked, pod, name, rand.New(rand.NewSource(asked.Seed)), map[string]refusal{}, nil}
	defer func() {
		if !asked.Keep {
			r.takeBack(0)
		}
	}()
	result, err := r.all()
	if asked.Pod {
		result.Pod = pod
	}
	return result, err
}

func (r *run) all() (placed, error) {
	if r.asked.Mode == modeExtremes {
		return r.extremes()
	}
	result := placed{Nodes: map[string]int{}}
	for result.Count < r.asked.Replicas {
		state := framework.NewCycleState()
		pod := r.next()
		fitting, refused, err := r.fitting(state, pod)
		if err != nil {
			return result, err
		}
		if len(fitting) == 0 {
			result.Refused = refused
			break
		}
		node, err := r.choose(state, pod, fitting)
		if err != nil {
			return result, err
		}
		if err := r.add(pod, node); err != nil {
			return result, err
		}
		result.Count++
		result.Nodes[node]++
		if r.asked.Sequence {
			result.Sequence = append(result.Sequence, node)
		}
	}
	return result, nil
}

func (r *run) next() *v1.Pod {
	pod := *r.pod
	pod.Name = r.name + "-" + strconv.Itoa(len(r.added))
	pod.UID = types.UID(podKey(&pod))
	return &pod
}

func (r *run) add(pod *v1.Pod, node string) error {
	pod.Spec.NodeName = node
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return err
	}
	r.view.now.add(info)
	r.added = append(r.added, pod)
	return nil
}

func (r *run) takeBack(count int) {
	for len(r.added) > count {
		last := len(r.added) - 1
		if err := r.view.now.drop(r.added[last]); err != nil {
			panic(err)
		}
		r.added = r.added[:last]
	}
}

// fitting: the candidates that pass all filters, until there are enough, and why each that was tried and is not among
// them does not.
func (r *run) fitting(state fwk.CycleState, pod *v1.Pod) ([]fwk.NodeInfo, map[string]refusal, error) {
	ctx := context.Background()
	refused := map[string]refusal{}
	all, enough := r.candidates()
	defer func() { r.nextStart += len(refused) }()
	allowed, status, _ := r.framework.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return nil, nil, status.AsError()
		}
		for _, node := range all {
			refused[node.Node().Name] = refusal{status.Plugin(), status.Reasons()}
		}
		return nil, refused, nil
	}
	var fitting []fwk.NodeInfo
	for _, node := range all {
		if len(fitting) == enough {
			break
		}
		name := node.Node().Name
		if why, shut := r.closed[name]; shut {
			refused[name] = why
			continue
		}
		if !allowed.AllNodes() && !allowed.NodeNames.Has(name) {
			refused[name] = refusal{names.NodeAffinity, []string{"not among the nodes that are named"}}
			continue
		}
		status := r.framework.RunFilterPlugins(ctx, state, pod, node)
		if status.IsSuccess() {
			fitting = append(fitting, node)
			r.nextStart++
			continue
		}
		if !status.IsRejected() {
			return nil, nil, status.AsError()
		}
		refused[name] = refusal{status.Plugin(), status.Reasons()}
		if r.closed != nil && lasting.Has(status.Plugin()) {
			r.closed[name] = refused[name]
		}
	}
	return fitting, refused, nil
}

func (r *run) choose(state fwk.CycleState, pod *v1.Pod, fitting []fwk.NodeInfo) (string, error) {
	switch r.asked.Mode {
	case modeFirst, modeLast, "":
		return fitting[0].Node().Name, nil
	case modeRandom:
		return fitting[r.chance.Intn(len(fitting))].Node().Name, nil
	case modeScore, modeSampled:
		return r.best(state, pod, fitting)
	}
	return "", fmt.Errorf("mode %q: expected first, last, random, score, sampled or extremes", r.asked.Mode)
}

func (r *run) best(state fwk.CycleState, pod *v1.Pod, fitting []fwk.NodeInfo) (string, error) {
	if len(fitting) == 1 {
		return fitting[0].Node().Name, nil
	}
	ctx := context.Background()
	if status := r.framework.RunPreScorePlugins(ctx, state, pod, fitting); !status.IsSuccess() {
		return "", status.AsError()
	}
	scores, status := r.framework.RunScorePlugins(ctx, state, pod, fitting)
	if !status.IsSuccess() {
		return "", status.AsError()
	}
	most := slices.MaxFunc(scores, func(a, b fwk.NodePluginScores) int { return int(a.TotalScore - b.TotalScore) })
	scores = slices.DeleteFunc(scores, func(one fwk.NodePluginScores) bool { return one.TotalScore < most.TotalScore })
	return scores[r.chance.Intn(len(scores))].Name, nil
}

// extremes visits every state that any sequence of choices reaches, each once: replicas are alike, so a state is their
// number on each node.
func (r *run) extremes() (placed, error) {
	r.closed = nil
	statesMax := r.asked.StatesMax
	if statesMax == 0 {
		statesMax = 2000
	}
	least, most := -1, -1
	seen := sets.New[string]()
	counts := map[string]int{}
	var visit func() error
	visit = func() error {
		key := r.countsKey(counts)
		if seen.Has(key) {
			return nil
		}
		if seen.Len() >= statesMax {
			return fmt.Errorf("extremes: more than %d states", statesMax)
		}
		seen.Insert(key)
		count := len(r.added)
		var fitting []fwk.NodeInfo
		if count < r.asked.Replicas {
			var err error
			if fitting, _, err = r.fitting(framework.NewCycleState(), r.next()); err != nil {
				return err
			}
		}
		if len(fitting) == 0 {
			most = max(most, count)
			if least < 0 || count < least {
				least = count
			}
			return nil
		}
		for _, node := range fitting {
			name := node.Node().Name
			if err := r.add(r.next(), name); err != nil {
				return err
			}
			counts[name]++
			err := visit()
			counts[name]--
			r.takeBack(count)
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(); err != nil {
		return placed{}, err
	}
	return placed{Count: least, Least: &least, Most: &most}, nil
}

func (r *run) countsKey(counts map[string]int) string {
	var key []byte
	for _, node := range r.view.now.nodes {
		key = strconv.AppendInt(key, int64(counts[node.Node().Name]), 10)
		key = append(key, ' ')
	}
	return string(key)
}
