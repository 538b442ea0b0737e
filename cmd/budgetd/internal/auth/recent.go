package auth

import "container/list"

// recent is a map of bounded size that forgets what was not used for longest.
// It is not safe for concurrent use.
type recent[V any] struct {
	limit int
	order *list.List // of recentEntry[V]; the front was used last
	byKey map[string]*list.Element
}

type recentEntry[V any] struct {
	key   string
	value V
}

func newRecent[V any](limit int) *recent[V] {
	return &recent[V]{limit: limit, order: list.New(), byKey: make(map[string]*list.Element)}
}

func (r *recent[V]) get(key string) (V, bool) {
	element, ok := r.byKey[key]
	if !ok {
		var none V
		return none, false
	}
	r.order.MoveToFront(element)
	return element.Value.(recentEntry[V]).value, true
}

func (r *recent[V]) put(key string, value V) {
	entry := recentEntry[V]{key, value}
	if element, ok := r.byKey[key]; ok {
		element.Value = entry
		r.order.MoveToFront(element)
		return
	}
	r.byKey[key] = r.order.PushFront(entry)
	if len(r.byKey) > r.limit {
		oldest := r.order.Back()
		r.order.Remove(oldest)
		delete(r.byKey, oldest.Value.(recentEntry[V]).key)
	}
}

func (r *recent[V]) remove(key string) {
	if element, ok := r.byKey[key]; ok {
		r.order.Remove(element)
		delete(r.byKey, key)
	}
}

func (r *recent[V]) each(change func(*V)) {
	for element := r.order.Front(); element != nil; element = element.Next() {
		entry := element.Value.(recentEntry[V])
		change(&entry.value)
		element.Value = entry
	}
}

func (r *recent[V]) len() int { return len(r.byKey) }
