package main

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// objects are informers that follow no server: each load fills them at once. The volume binder keeps caches of its own
// that hear of volumes and claims by events, so those two informers remember who listens.
type objects struct {
	informers.SharedInformerFactory
	volumes *told
	claims  *told
}

func newObjects() *objects {
	made := informers.NewSharedInformerFactory(nil, 0)
	v1 := made.Core().V1()
	return &objects{
		made,
		&told{SharedIndexInformer: v1.PersistentVolumes().Informer()},
		&told{SharedIndexInformer: v1.PersistentVolumeClaims().Informer()},
	}
}

func (o *objects) replace(w *world) error {
	v1 := o.SharedInformerFactory.Core().V1()
	classes := o.SharedInformerFactory.Storage().V1().StorageClasses().Informer()
	if err := replaceAll(v1.Namespaces().Informer().GetIndexer(), w.Namespaces); err != nil {
		return err
	}
	if err := replaceAll(classes.GetIndexer(), w.StorageClasses); err != nil {
		return err
	}
	if err := o.volumes.replace(asObjects(w.Volumes)); err != nil {
		return err
	}
	return o.claims.replace(asObjects(w.Claims))
}

func replaceAll[T any](into cache.Indexer, objects []T) error {
	return into.Replace(asObjects(objects), "")
}

func asObjects[T any](typed []T) []interface{} {
	all := make([]interface{}, len(typed))
	for i, object := range typed {
		all[i] = object
	}
	return all
}

type told struct {
	cache.SharedIndexInformer
	listeners []cache.ResourceEventHandler
}

func (t *told) AddEventHandler(
	listener cache.ResourceEventHandler,
) (cache.ResourceEventHandlerRegistration, error) {
	t.listeners = append(t.listeners, listener)
	return nil, nil
}

func (t *told) replace(found []interface{}) error {
	for _, old := range t.GetIndexer().List() {
		for _, listener := range t.listeners {
			listener.OnDelete(old)
		}
	}
	for _, object := range found {
		// The binder's caches compare versions, which objects that no server has stored lack.
		known, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		if known.GetResourceVersion() == "" {
			known.SetResourceVersion("1")
		}
		for _, listener := range t.listeners {
			listener.OnAdd(object, true)
		}
	}
	return t.GetIndexer().Replace(found, "")
}

func (o *objects) Core() core.Interface { return coreObjects{o.SharedInformerFactory.Core(), o} }

type coreObjects struct {
	core.Interface
	all *objects
}

func (c coreObjects) V1() corev1.Interface { return coreV1Objects{c.Interface.V1(), c.all} }

type coreV1Objects struct {
	corev1.Interface
	all *objects
}

func (c coreV1Objects) PersistentVolumes() corev1.PersistentVolumeInformer {
	return volumeInformer{c.Interface.PersistentVolumes(), c.all.volumes}
}

func (c coreV1Objects) PersistentVolumeClaims() corev1.PersistentVolumeClaimInformer {
	return claimInformer{c.Interface.PersistentVolumeClaims(), c.all.claims}
}

type volumeInformer struct {
	corev1.PersistentVolumeInformer
	told *told
}

func (i volumeInformer) Informer() cache.SharedIndexInformer { return i.told }

type claimInformer struct {
	corev1.PersistentVolumeClaimInformer
	told *told
}

func (i claimInformer) Informer() cache.SharedIndexInformer { return i.told }
