package memstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestShareBook plays a book beside a map that is searched as a whole.
func TestShareBook(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	book, plain := shareBook{}, map[string]int64{}
	now := int64(0)
	for step := range 50_000 {
		// Now and then many instants pass at once.
		if now += random.Int64N(3); random.IntN(2000) == 0 {
			now += 500
		}
		account := fmt.Sprint(random.IntN(400))
		until := now + random.Int64N(600) - 50
		book.put(account, until, now)
		plain[account] = until
		want := 0
		for _, at := range plain {
			if at > now {
				want++
			}
		}
		if got := book.count(now); got != want {
			t.Fatalf("step %d: %d accounts count, want %d", step, got, want)
		}
		if got := book.until(account, now); got != max(until, now) && !(until <= now && got == 0) {
			t.Fatalf("step %d: until %d, want %d", step, got, until)
		}
		if book.ordered.len() != len(book.of) {
			t.Fatalf("step %d: %d in the tree, %d in the map", step, book.ordered.len(), len(book.of))
		}
	}
}

// TestSharesAreForgottenInParts: a call after many accounts have left pays for few of
// them, none of them counts, and calls that add accounts forget the rest.
func TestSharesAreForgottenInParts(t *testing.T) {
	book := shareBook{}
	for i := range 1000 {
		book.put(fmt.Sprint("gone-", i), 10, 0)
	}
	if n, left := book.count(10), len(book.of); n != 0 || left != 1000-16 {
		t.Errorf("%d count, and %d are known after one call", n, left)
	}
	for i := range 100 {
		book.put(fmt.Sprint("here-", i), 20, 10)
		if n := book.count(10); n != i+1 {
			t.Fatalf("%d count, want %d", n, i+1)
		}
	}
	if left := len(book.of); left != 100 {
		t.Errorf("%d are known, want 100", left)
	}
}
