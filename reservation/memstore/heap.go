package memstore

import "bytes"

// The heaps know the place of each element, so that one leaves from the middle
// in O(log n). They are written out three times: through container/heap's
// interface a push costs twice as much.

// recordHeap has the record that is due first on top; ids decide among equals.
type recordHeap []*record

func (h recordHeap) less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return bytes.Compare(h[i].id[:], h[j].id[:]) < 0
}

func (h recordHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *recordHeap) push(r *record) {
	r.index = len(*h)
	*h = append(*h, r)
	h.up(r.index)
}

func (h *recordHeap) remove(r *record) {
	i, last := r.index, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		h.fix(i)
	}
}

func (h recordHeap) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h recordHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h recordHeap) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return moved
		}
		if child+1 < len(h) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}

// counterHeap has the counter that falls silent first on top.
type counterHeap []*counter

func (h counterHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].idleIndex, h[j].idleIndex = i, j
}

func (h *counterHeap) push(c *counter) {
	c.idleIndex = len(*h)
	*h = append(*h, c)
	h.up(c.idleIndex)
}

func (h *counterHeap) remove(c *counter) {
	i, last := c.idleIndex, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	c.idleIndex = -1
	if i < last && !h.down(i) {
		h.up(i)
	}
}

func (h counterHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[i].idleAt >= h[parent].idleAt {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h counterHeap) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return moved
		}
		if child+1 < len(h) && h[child+1].idleAt < h[child].idleAt {
			child++
		}
		if h[child].idleAt >= h[i].idleAt {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}

// spaceHeap has the account or pool that is due first on top.
type spaceHeap []*space

func (h spaceHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *spaceHeap) push(a *space) {
	a.index = len(*h)
	*h = append(*h, a)
	h.up(a.index)
}

func (h *spaceHeap) remove(a *space) {
	i, last := a.index, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = -1
	if i < last && !h.down(i) {
		h.up(i)
	}
}

func (h spaceHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[i].dueAt >= h[parent].dueAt {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h spaceHeap) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return moved
		}
		if child+1 < len(h) && h[child+1].dueAt < h[child].dueAt {
			child++
		}
		if h[child].dueAt >= h[i].dueAt {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}

// slotHeap has the holder whose lease ends first on top.
type slotHeap []*hold

func (h slotHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

func (h *slotHeap) push(s *hold) {
	s.slot = len(*h)
	*h = append(*h, s)
	h.up(s.slot)
}

func (h *slotHeap) remove(s *hold) {
	i, last := s.slot, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	s.slot = -1
	if i < last && !h.down(i) {
		h.up(i)
	}
}

func (h slotHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[i].record.expires >= h[parent].record.expires {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h slotHeap) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return moved
		}
		if child+1 < len(h) && h[child+1].record.expires < h[child].record.expires {
			child++
		}
		if h[child].record.expires >= h[i].record.expires {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}
