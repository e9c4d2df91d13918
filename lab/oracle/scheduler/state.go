package main

import (
	"fmt"
	"sort"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// world is what the scheduler of a cluster watches. Pods are as the API server stores them: what has no node, has
// ended, or is on a node that is not there takes part in nothing.
type world struct {
	Nodes          []*v1.Node                  `json:"nodes"`
	Pods           []*v1.Pod                   `json:"pods,omitempty"`
	Namespaces     []*v1.Namespace             `json:"namespaces,omitempty"`
	Volumes        []*v1.PersistentVolume      `json:"volumes,omitempty"`
	Claims         []*v1.PersistentVolumeClaim `json:"claims,omitempty"`
	StorageClasses []*storagev1.StorageClass   `json:"storageClasses,omitempty"`
}

// cluster is the snapshot that the plugins see. Unlike the scheduler's own it orders nodes by name and may be added to.
type cluster struct {
	nodes        []fwk.NodeInfo
	byName       map[string]*framework.NodeInfo
	affinity     []fwk.NodeInfo
	antiAffinity []fwk.NodeInfo
	pods         map[string]*v1.Pod
}

func newCluster(nodes []*v1.Node) *cluster {
	c := &cluster{byName: map[string]*framework.NodeInfo{}, pods: map[string]*v1.Pod{}}
	for _, node := range nodes {
		info := framework.NewNodeInfo()
		info.SetNode(node)
		c.byName[node.Name] = info
	}
	for _, info := range c.byName {
		c.nodes = append(c.nodes, info)
	}
	sort.Slice(c.nodes, func(i, j int) bool { return c.nodes[i].Node().Name < c.nodes[j].Node().Name })
	return c
}

func podKey(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

func (c *cluster) add(info *framework.PodInfo) {
	pod := info.Pod
	node := c.byName[pod.Spec.NodeName]
	first, firstAnti := len(node.PodsWithAffinity) == 0, len(node.PodsWithRequiredAntiAffinity) == 0
	node.AddPodInfo(info)
	c.pods[podKey(pod)] = pod
	if first && len(node.PodsWithAffinity) > 0 {
		c.affinity = append(c.affinity, node)
	}
	if firstAnti && len(node.PodsWithRequiredAntiAffinity) > 0 {
		c.antiAffinity = append(c.antiAffinity, node)
	}
}

func (c *cluster) drop(pod *v1.Pod) error {
	node := c.byName[pod.Spec.NodeName]
	had, hadAnti := len(node.PodsWithAffinity) > 0, len(node.PodsWithRequiredAntiAffinity) > 0
	if err := node.RemovePod(klog.Background(), pod); err != nil {
		return err
	}
	delete(c.pods, podKey(pod))
	if had && len(node.PodsWithAffinity) == 0 {
		c.affinity = without(c.affinity, node)
	}
	if hadAnti && len(node.PodsWithRequiredAntiAffinity) == 0 {
		c.antiAffinity = without(c.antiAffinity, node)
	}
	return nil
}

func without(nodes []fwk.NodeInfo, gone *framework.NodeInfo) []fwk.NodeInfo {
	kept := nodes[:0:0]
	for _, node := range nodes {
		if node.(*framework.NodeInfo) != gone {
			kept = append(kept, node)
		}
	}
	return kept
}

// view is what the framework holds for the life of the process; the cluster behind it is changed by each load.
type view struct{ now *cluster }

func (v *view) NodeInfos() fwk.NodeInfoLister           { return nodeView{v} }
func (v *view) StorageInfos() fwk.StorageInfoLister     { return v }
func (v *view) PodGroupStates() fwk.PodGroupStateLister { return noPodGroups{} }

func (v *view) IsPVCUsedByPods(key string) bool {
	for _, node := range v.now.byName {
		if node.PVCRefCounts[key] > 0 {
			return true
		}
	}
	return false
}

type nodeView struct{ *view }

func (v nodeView) List() ([]fwk.NodeInfo, error)                     { return v.now.nodes, nil }
func (v nodeView) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) { return v.now.affinity, nil }
func (v nodeView) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return v.now.antiAffinity, nil
}

func (v nodeView) Get(name string) (fwk.NodeInfo, error) {
	if info, found := v.now.byName[name]; found {
		return info, nil
	}
	return nil, fmt.Errorf("no node %q", name)
}

type noPodGroups struct{}

func (noPodGroups) Get(namespace, name string) (fwk.PodGroupState, error) {
	return nil, fmt.Errorf("no pod group %s/%s", namespace, name)
}

func (o *oracle) load(w *world) error {
	o.view.now = newCluster(w.Nodes)
	o.nextStart = 0
	if err := o.objects.replace(w); err != nil {
		return err
	}
	for _, pod := range w.Pods {
		legacyscheme.Scheme.Default(pod)
		_, known := o.view.now.byName[pod.Spec.NodeName]
		ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if !known || ended {
			continue
		}
		if err := o.assume(pod); err != nil {
			return err
		}
	}
	return nil
}

// assume binds a pod to the node that it names, whether or not it fits there.
func (o *oracle) assume(pod *v1.Pod) error {
	c := o.view.now
	legacyscheme.Scheme.Default(pod)
	pod, err := asStored(pod)
	if err != nil {
		return err
	}
	if _, found := c.byName[pod.Spec.NodeName]; !found {
		return fmt.Errorf("pod %s: no node %q", podKey(pod), pod.Spec.NodeName)
	}
	if _, found := c.pods[podKey(pod)]; found {
		return fmt.Errorf("pod %s is there already", podKey(pod))
	}
	if pod.UID == "" {
		pod.UID = types.UID(podKey(pod))
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return fmt.Errorf("pod %s: %w", podKey(pod), err)
	}
	c.add(info)
	return nil
}

func (o *oracle) remove(key string) error {
	pod, found := o.view.now.pods[key]
	if !found {
		return fmt.Errorf("no pod %s", key)
	}
	return o.view.now.drop(pod)
}
