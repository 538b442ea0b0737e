package memstore

// share is one account's in a [shareBook], and a node of its tree: a treap by instant,
// and by name among equals, that knows how many are below each node. So it tells how many
// instants are ahead without a walk through those that have passed. nil is the tree of
// none.
type share struct {
	account string
	until   int64

	left, right *share
	weight      uint32 // at random: heavier ones are above, which keeps the tree flat
	size        int32  // of the tree from here down
}

func (t *share) before(other *share) bool {
	if t.until != other.until {
		return t.until < other.until
	}
	return t.account < other.account
}

func (t *share) len() int {
	if t == nil {
		return 0
	}
	return int(t.size)
}

// counted is t after a change below it.
func (t *share) counted() *share {
	t.size = int32(1 + t.left.len() + t.right.len())
	return t
}

// after is how many instants are after one.
func (t *share) after(instant int64) int {
	n := 0
	for t != nil {
		if t.until <= instant {
			t = t.right
			continue
		}
		n += 1 + t.right.len()
		t = t.left
	}
	return n
}

// first is the earliest; the tree is not empty.
func (t *share) first() *share {
	for t.left != nil {
		t = t.left
	}
	return t
}

// with is the tree and one that is not in it.
func (t *share) with(one *share) *share {
	switch {
	case t == nil || one.weight > t.weight:
		one.left, one.right = t.split(one)
		return one.counted()
	case one.before(t):
		t.left = t.left.with(one)
	default:
		t.right = t.right.with(one)
	}
	return t.counted()
}

// without is the tree but for one that is in it.
func (t *share) without(one *share) *share {
	switch {
	case t == one:
		t = joined(one.left, one.right)
		one.left, one.right = nil, nil
		return t
	case one.before(t):
		t.left = t.left.without(one)
	default:
		t.right = t.right.without(one)
	}
	return t.counted()
}

// split is what is before one, and what is not.
func (t *share) split(one *share) (before, others *share) {
	switch {
	case t == nil:
		return nil, nil
	case t.before(one):
		t.right, others = t.right.split(one)
		return t.counted(), others
	default:
		before, t.left = t.left.split(one)
		return before, t.counted()
	}
}

// joined is two trees as one: all of the left one is before the right one.
func joined(left, right *share) *share {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left.weight > right.weight:
		left.right = joined(left.right, right)
		return left.counted()
	default:
		right.left = joined(left, right.left)
		return right.counted()
	}
}
