package quota

import (
	"testing"
	"time"
)

func TestKept(t *testing.T) {
	keep := map[Priority]int{PriorityInteractive: 20, PriorityCritical: 5}
	kept := func(l Limit) [4]Amount {
		l.KeepFor = keep
		return [4]Amount{l.Kept(PriorityBatch), l.Kept(PriorityDefault), l.Kept(PriorityInteractive), l.Kept(PriorityCritical)}
	}
	rate := Rate{Amount: 1000, Every: time.Minute}
	for _, c := range []struct {
		name  string
		limit Limit
		want  [4]Amount
	}{
		{"a bucket's burst", Limit{Kind: KindBucket, Rate: rate, Burst: 200}, [4]Amount{50, 50, 10, 0}},
		{"a bucket's rate", Limit{Kind: KindBucket, Rate: rate}, [4]Amount{250, 250, 50, 0}},
		{"a window", Limit{Kind: KindSlidingLog, Rate: rate}, [4]Amount{250, 250, 50, 0}},
		{"slots, rounded up", Limit{Kind: KindSlots, Max: 7}, [4]Amount{2, 2, 1, 0}},
		{"the largest quota", Limit{Kind: KindQuota, Max: MaxAmount}, [4]Amount{2251799813685248, 2251799813685248, 450359962737050, 0}},
	} {
		if got := kept(c.limit); got != c.want {
			t.Errorf("%s: kept %v, want %v", c.name, got, c.want)
		}
	}
	if kept := (Limit{Kind: KindSlots, Max: 7}).Kept(PriorityBatch); kept != 0 {
		t.Errorf("a limit without keep_for keeps %d", kept)
	}
}

func TestPriorityWords(t *testing.T) {
	for i, word := range PriorityWords() {
		p, err := ParsePriority(word)
		if err != nil || p.String() != word || p != PriorityBatch+Priority(i) {
			t.Errorf("%s: %v, %v", word, p, err)
		}
	}
	if p, err := ParsePriority(""); p != PriorityDefault || err != nil {
		t.Errorf("no word: %v, %v", p, err)
	}
	if _, err := ParsePriority("urgent"); err == nil {
		t.Error("urgent is accepted")
	}
}
