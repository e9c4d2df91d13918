package main

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
)

// left out of the default profile: what acts on a cluster (preemption, device claims), and what asks for objects that a
// request does not have (CSINodes).
var leftOut = sets.New(
	names.SchedulingGates, names.DefaultPreemption, names.DynamicResources, names.NodeVolumeLimits,
	names.NodeDeclaredFeatures,
)

type oracle struct {
	view        *view
	objects     *objects
	framework   framework.Framework
	tolerations *defaulttolerationseconds.Plugin
	placed      int
	// nextStart is where mode sampled begins to try nodes.
	nextStart int
}

func newOracle() (*oracle, error) {
	metrics.Register()
	o := &oracle{
		view:        &view{newCluster(nil)},
		objects:     newObjects(),
		tolerations: defaulttolerationseconds.NewDefaultTolerationSeconds(),
	}
	o.tolerations.InspectFeatureGates(utilfeature.DefaultFeatureGate)
	configuration, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := configuration.Profiles[0].DeepCopy()
	enabled := profile.Plugins.MultiPoint.Enabled
	profile.Plugins.MultiPoint.Enabled = enabled[:0:0]
	for _, plugin := range enabled {
		if !leftOut.Has(plugin.Name) {
			profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, plugin)
		}
	}
	o.framework, err = runtime.NewFramework(
		context.Background(), plugins.NewInTreeRegistry(), profile,
		runtime.WithInformerFactory(o.objects),
		runtime.WithSnapshotSharedLister(o.view),
		runtime.WithParallelism(1),
	)
	return o, err
}

// admit makes of a pod what the API server would store: defaults, the tolerations that a default server adds, and what
// creation itself changes (matchLabelKeys joined to selectors). An error is the server's refusal.
func (o *oracle) admit(pod *v1.Pod) (*v1.Pod, error) {
	ctx := context.Background()
	given := pod.DeepCopy()
	legacyscheme.Scheme.Default(given)
	internal := &api.Pod{}
	if err := legacyscheme.Scheme.Convert(given, internal, nil); err != nil {
		return nil, err
	}
	attributes := admission.NewAttributesRecord(
		internal, nil, api.SchemeGroupVersion.WithKind("Pod"), internal.Namespace, internal.Name,
		api.Resource("pods").WithVersion("version"), "", admission.Create, nil, false, nil,
	)
	if err := o.tolerations.Admit(ctx, attributes, nil); err != nil {
		return nil, err
	}
	podregistry.Strategy.PrepareForCreate(ctx, internal)
	if refused := podregistry.Strategy.Validate(ctx, internal); len(refused) > 0 {
		return nil, fmt.Errorf("the API server refuses it: %w", refused.ToAggregate())
	}
	admitted := &v1.Pod{}
	if err := legacyscheme.Scheme.Convert(internal, admitted, nil); err != nil {
		return nil, err
	}
	return asStored(admitted)
}

// asStored is a pod as it comes out of a store again. Until then an amount of the pod that was written as 0.1Gi is held
// by reference, and what sums its requests adds the overhead to the pod itself, each time.
func asStored(pod *v1.Pod) (*v1.Pod, error) {
	if pod.Spec.Resources == nil {
		return pod, nil
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	stored := &v1.Pod{}
	return stored, json.Unmarshal(text, stored)
}
