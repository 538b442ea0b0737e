package ledgertest

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// closings collects the pages of a query, and checks their bounds.
func (b *bench) closings(q ledger.ClosingsQuery) []ledger.Closing {
	b.t.Helper()
	var all []ledger.Closing
	for pages := 0; ; pages++ {
		page, err := b.engine().Closings(b.ctx, q)
		if err != nil {
			b.t.Fatalf("closings: %v", err)
		}
		if len(page.Closings) > q.Limit || pages > 10_000 {
			b.t.Fatalf("page %d has %d closings, at most %d were asked for", pages, len(page.Closings), q.Limit)
		}
		all = append(all, page.Closings...)
		if page.Next == "" {
			break
		}
		q.After = page.Next
	}
	slices.SortFunc(all, func(a, b ledger.Closing) int {
		return cmp.Or(strings.Compare(a.Account, b.Account), bytes.Compare(a.Reservation[:], b.Reservation[:]), a.Minted.Compare(b.Minted))
	})
	return all
}

func closingsByPages(t *testing.T, b *bench) {
	models := []string{"gpt-4o", "gpt-4o-mini", ""}
	var all []ledger.Closing // sorted
	for a, account := range []string{"acme", "acme2", "beta"} {
		for i := range 24 {
			key := spend
			key.Account = account
			c := refund(i, line(key, 5))
			c.Account = account
			c.Minted = noon.AddDate(0, i/8-1, 0).Add(time.Duration(i%8) * time.Hour)
			c.Labels = map[string]string{"model": models[i%3], "team": "a"}
			if i%3 == 2 {
				c.Labels = map[string]string{"team": "b"}
			}
			c.Late = (a+i)%2 == 0
			all = append(all, c)
		}
	}
	b.append(all...)
	where := func(keep func(ledger.Closing) bool) []ledger.Closing {
		return slices.DeleteFunc(slices.Clone(all), func(c ledger.Closing) bool { return !keep(c) })
	}
	ever := ledger.ClosingsQuery{From: ledger.MinInstant, To: ledger.EndInstant}
	day := ledger.ClosingsQuery{From: noon.Add(2 * time.Hour), To: noon.Add(6 * time.Hour)}
	inDay := func(c ledger.Closing) bool { return !c.Minted.Before(day.From) && c.Minted.Before(day.To) }
	for name, check := range map[string]struct {
		query ledger.ClosingsQuery
		want  []ledger.Closing
	}{
		"everything": {ever, all},
		"one account": {
			ledger.ClosingsQuery{Account: "acme", From: ever.From, To: ever.To},
			where(func(c ledger.Closing) bool { return c.Account == "acme" }),
		},
		"a span": {day, where(inDay)},
		"a span of an account with a label": {
			ledger.ClosingsQuery{Account: "beta", From: day.From, To: day.To, Labels: map[string]string{"model": "gpt-4o"}},
			where(func(c ledger.Closing) bool {
				return c.Account == "beta" && inDay(c) && c.Labels["model"] == "gpt-4o"
			}),
		},
		"two labels": {
			ledger.ClosingsQuery{From: ever.From, To: ever.To, Labels: map[string]string{"model": "gpt-4o-mini", "team": "a"}},
			where(func(c ledger.Closing) bool { return c.Labels["model"] == "gpt-4o-mini" && c.Labels["team"] == "a" }),
		},
		"no label is no empty label": {ledger.ClosingsQuery{From: ever.From, To: ever.To, Labels: map[string]string{"model": ""}}, nil},
		"an unknown account":         {ledger.ClosingsQuery{Account: "nobody", From: ever.From, To: ever.To}, nil},
		"a span without any":         {ledger.ClosingsQuery{From: noon.AddDate(5, 0, 0), To: noon.AddDate(6, 0, 0)}, nil},
	} {
		for _, limit := range []int{1, 7, ledger.MaxPage} {
			check.query.Limit = limit
			b.same(name, b.closings(check.query), check.want)
		}
	}
	// Lines are what is charged now.
	expired := expiry(100, line(spend, 1))
	settled := refund(100)
	b.append(expired, settled)
	settled.Lines = []ledger.Line{line(spend, 0)}
	q := ever
	q.Account, q.Limit = "acme", 100
	if found := b.closings(q); len(found) != 25 {
		t.Errorf("%d closings, want 25", len(found))
	} else {
		b.same("lines", found[24], settled)
	}
}

// closingsInSteps walks past more closings than one call looks at.
func closingsInSteps(t *testing.T, b *bench) {
	const many = ledger.MaxPage + 500
	var batch []ledger.Closing
	for i := range many {
		c := refund(i)
		c.Labels = nil
		batch = append(batch, c)
		if len(batch) == ledger.MaxAppend || i == many-1 {
			b.append(batch...)
			batch = nil
		}
	}
	last := refund(many)
	last.Labels = map[string]string{"model": "rare"}
	b.append(last)
	q := ledger.ClosingsQuery{From: noon, To: noon.Add(time.Second), Labels: last.Labels, Limit: 5}
	page, err := b.engine().Closings(b.ctx, q)
	if err != nil || len(page.Closings) > 0 || page.Next == "" {
		t.Errorf("the first step found %d closings, next %q, %v; want a bounded step that finds none", len(page.Closings), page.Next, err)
	}
	b.same("the rare one", b.closings(q), []ledger.Closing{last})
}

func closingsOutOfBounds(t *testing.T, b *bench) {
	for field, fault := range map[string]func(*ledger.ClosingsQuery){
		"account: ":    func(q *ledger.ClosingsQuery) { q.Account = "a\x00" },
		"labels[":      func(q *ledger.ClosingsQuery) { q.Labels = map[string]string{"": "x"} },
		"from: ":       func(q *ledger.ClosingsQuery) { q.From = time.Time{} },
		"to: 9999":     func(q *ledger.ClosingsQuery) { q.To = ledger.EndInstant.Add(1) },
		"to: 2026":     func(q *ledger.ClosingsQuery) { q.To = q.From },
		"limit: 0":     func(q *ledger.ClosingsQuery) { q.Limit = 0 },
		"limit: 10001": func(q *ledger.ClosingsQuery) { q.Limit = ledger.MaxPage + 1 },
		"after: ":      func(q *ledger.ClosingsQuery) { q.After = "?" },
	} {
		q := ledger.ClosingsQuery{From: noon, To: noon.Add(time.Hour), Limit: 1}
		fault(&q)
		_, err := b.engine().Closings(b.ctx, q)
		wantInvalid(t, err, field)
	}
}

// changes follows what changed.
type changes struct {
	*bench
	mark string
}

// read returns what changed since the last read, each row once, by key.
func (c *changes) read(limit int) []ledger.Usage {
	c.t.Helper()
	seen := map[ledger.UsageKey]ledger.Usage{}
	for more := true; more; {
		page, err := c.engine().Changes(c.ctx, c.mark, limit)
		if err != nil {
			c.t.Fatalf("changes: %v", err)
		}
		if len(page.Usage) > limit || page.More && len(page.Usage) < limit {
			c.t.Fatalf("changes: %d rows of %d, more: %t", len(page.Usage), limit, page.More)
		}
		for _, u := range page.Usage {
			seen[u.UsageKey] = u
		}
		c.mark, more = page.Mark, page.More
	}
	var all []ledger.Usage
	for _, u := range seen {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b ledger.Usage) int { return a.Compare(b.UsageKey) })
	return all
}

func changesAreFollowed(t *testing.T, b *bench) {
	other, third := spend, spend
	other.Scope, third.Account = "other", "zeta"
	c := refund(1, line(spend, 5))
	b.append(c)
	feed := &changes{bench: b}
	b.same("from now on", feed.read(10), []ledger.Usage(nil))
	b.same("nothing", feed.read(10), []ledger.Usage(nil))

	b.append(refund(2, line(spend, 5), line(other, 1)), refund(3, line(other, 0)))
	elsewhere := refund(4, line(third, 3))
	elsewhere.Account = third.Account
	if _, err := b.open().Append(b.ctx, []ledger.Closing{elsewhere}); err != nil { // another node
		t.Fatal(err)
	}
	for _, limit := range []int{1, 2, 10} {
		again := *feed
		b.same("appended", again.read(limit), []ledger.Usage{row(spend, 10, 2), row(other, 1, 1), row(third, 3, 1)})
		b.same("once", again.read(limit), []ledger.Usage(nil))
	}
	feed.read(2)
	b.append(c) // changes nothing
	b.same("a repeated closing", feed.read(2), []ledger.Usage(nil))

	b.adjust(adjustment(1, other, -1), true, row(other, 0, 2))
	b.reprice(correction(1), 1, 0, []ledger.Usage{row(spend, 6, 3)}, repricing(c, line(spend, 1)))
	b.same("adjusted and repriced", feed.read(1), []ledger.Usage{row(spend, 6, 3), row(other, 0, 2)})

	for _, mark := range []string{"x", "1:2", "-1", "9/", "1:2:3/1:2:3/zz", strings.Repeat("1", 1<<20+1)} {
		if _, err := b.engine().Changes(b.ctx, mark, 1); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("mark %.20q: error %v, want ErrInvalid", mark, err)
		}
	}
	for _, limit := range []int{0, ledger.MaxPage + 1} {
		_, err := b.engine().Changes(b.ctx, "", limit)
		wantInvalid(t, err, "limit: ")
	}
}
