package ledgertest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// total is a line of an account's totals.
func total(meter quota.Meter, amount, held quota.Amount) ledger.Line {
	return ledger.Line{Period: "m2026-11-01", Meter: meter, Amount: amount, Held: held}
}

func at(text string) time.Time {
	at, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		panic(err)
	}
	return at
}

// report reads all pages of a report.
func (b *bench) report(l ledger.Ledger, q ledger.ReportQuery) []ledger.ReportRow {
	b.t.Helper()
	var rows []ledger.ReportRow
	for {
		page, err := l.Report(b.ctx, q)
		if err != nil {
			b.t.Fatalf("report of %+v: %v", q, err)
		}
		if len(page.Rows) > q.Limit || page.Next != "" && len(page.Rows) < q.Limit {
			b.t.Fatalf("a page of %d rows, of at most %d; the next is %q", len(page.Rows), q.Limit, page.Next)
		}
		rows = append(rows, page.Rows...)
		if page.Next == "" {
			return rows
		}
		q.After = page.Next
	}
}

// maintain does all that is due.
func (b *bench) maintain(l ledger.Ledger) (rolled int) {
	b.t.Helper()
	for {
		done, err := l.Maintain(b.ctx, noon, 0)
		if err != nil {
			b.t.Fatalf("maintain: %v", err)
		}
		rolled += done.Rolled
		if !done.More {
			return rolled
		}
	}
}

func reportByHand(t *testing.T, b *bench) {
	call := func(number int, minted, model string, lines ...ledger.Line) ledger.Closing {
		c := refund(number, lines...)
		c.Minted = at(minted)
		c.Labels = map[string]string{"route": "chat"}
		if model != "none" {
			c.Labels["model"] = model
		}
		return c
	}
	other := call(9, "2026-11-30 23:59", "a", total("cost", 50, 60))
	other.Account = "other"
	b.append(
		call(1, "2026-11-29 09:30", "b", total("cost", 1, 16)),
		call(2, "2026-11-30 22:10", "a", total("cost", 2, 32), total("tokens", 7, 7)),
		call(3, "2026-11-30 22:50", "a", total("cost", 4, 64)),
		call(4, "2026-11-30 23:59", "none", total("cost", 8, 8)),
		call(5, "2026-12-01 00:00", "", total("cost", 16, 0)),
		call(6, "2026-12-01 10:00", "a", line(spend, 1000)), // a limit is no total
		other,
	)
	row := func(start, group string, meter quota.Meter, used, held quota.Amount, calls int64) ledger.ReportRow {
		r := ledger.ReportRow{Start: at(start), Group: []string{group}, Absent: []bool{false}, Meter: meter, Used: used, Held: held, Calls: calls}
		if group == "none" {
			r.Group[0], r.Absent[0] = "", true
		}
		return r
	}
	query := func(grain ledger.Grain, from, to string) ledger.ReportQuery {
		return ledger.ReportQuery{Account: spend.Account, Grain: grain, From: at(from), To: at(to), GroupBy: []string{"model"}, Limit: 2}
	}
	all := query(ledger.GrainMonth, "2026-11-30 00:00", "2026-12-01 00:01")
	all.Account, all.GroupBy, all.Meters = "", []string{"account"}, []quota.Meter{"cost"}
	route := query(ledger.GrainTotal, "2026-11-29 10:00", "2026-12-01 00:00")
	route.GroupBy, route.Labels = []string{"route"}, map[string]string{"model": "a"}
	plain := query(ledger.GrainTotal, "2026-11-29 09:59", "2026-12-01 00:01")
	plain.GroupBy, plain.Meters = nil, []quota.Meter{"cost"}
	check := func(when string) {
		for _, c := range []struct {
			what  string
			query ledger.ReportQuery
			want  []ledger.ReportRow
		}{
			{"hours", query(ledger.GrainHour, "2026-11-30 22:59", "2026-12-01 00:00"), []ledger.ReportRow{
				row("2026-11-30 22:00", "a", "cost", 6, 96, 2),
				row("2026-11-30 22:00", "a", "tokens", 7, 7, 1),
				row("2026-11-30 23:00", "none", "cost", 8, 8, 1),
			}},
			{"days", query(ledger.GrainDay, "2026-11-30 12:00", "2026-12-01 00:01"), []ledger.ReportRow{
				row("2026-11-30 00:00", "none", "cost", 8, 8, 1),
				row("2026-11-30 00:00", "a", "cost", 6, 96, 2),
				row("2026-11-30 00:00", "a", "tokens", 7, 7, 1),
				row("2026-12-01 00:00", "", "cost", 16, 0, 1),
			}},
			{"months of all accounts", all, []ledger.ReportRow{
				row("2026-11-01 00:00", "acme", "cost", 15, 120, 4),
				row("2026-11-01 00:00", "other", "cost", 50, 60, 1),
				row("2026-12-01 00:00", "acme", "cost", 16, 0, 1),
			}},
			{"a total of one label", route, []ledger.ReportRow{
				row("2026-11-29 10:00", "chat", "cost", 6, 96, 2),
				row("2026-11-29 10:00", "chat", "tokens", 7, 7, 1),
			}},
			{"a total of no group", plain, []ledger.ReportRow{
				{Start: at("2026-11-29 09:00"), Group: []string{}, Absent: []bool{}, Meter: "cost", Used: 31, Held: 120, Calls: 5},
			}},
			{"nothing", query(ledger.GrainDay, "2025-01-01 00:00", "2026-01-01 00:00"), nil},
		} {
			b.same(c.what+" "+when, b.report(b.engine(), c.query), c.want)
		}
	}
	check("at once")
	b.maintain(b.engine())
	check("rolled up")
	b.append(other) // once more: nothing to add
	if rolled := b.maintain(b.engine()); rolled != 0 {
		t.Errorf("a repeated closing made %d deltas", rolled)
	}
}

// reportOfChanges sees what is posted without a closing, under the hour of an
// adjustment and under the labels and the hour of a closing that is repriced.
func reportOfChanges(t *testing.T, b *bench) {
	totals := ledger.UsageKey{Account: spend.Account, Period: "m2026-11-01", Meter: quota.MeterCost}
	c := refund(1, total(quota.MeterCost, 100, 400), line(spend, 100))
	b.append(c)
	b.maintain(b.engine())
	credit := adjustment(1, totals, -30)
	credit.At = noon.Add(25 * time.Hour)
	onLimit := adjustment(2, spend, -7)
	for _, a := range []ledger.Adjustment{credit, onLimit, credit} {
		if _, _, err := b.engine().Adjust(b.ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	change := repricing(c, line(totals, 50), line(spend, 50))
	for range 2 {
		if _, err := b.engine().Reprice(b.ctx, correction(1), []ledger.Repricing{change}); err != nil {
			t.Fatal(err)
		}
	}
	q := ledger.ReportQuery{From: noon, To: noon.Add(48 * time.Hour), Grain: ledger.GrainDay, GroupBy: []string{"model"}, Limit: 10}
	day := noon.Truncate(24 * time.Hour)
	want := []ledger.ReportRow{
		{Start: day, Group: []string{"gpt-4o"}, Absent: []bool{false}, Meter: quota.MeterCost, Used: 50, Held: 400, Calls: 1},
		{Start: day.AddDate(0, 0, 1), Group: []string{""}, Absent: []bool{true}, Meter: quota.MeterCost, Used: -30},
	}
	b.same("at once", b.report(b.engine(), q), want)
	b.maintain(b.engine())
	b.same("rolled up", b.report(b.engine(), q), want)
}

// reportModel remembers each closing that was posted, and sums them up as
// naively as can be.
type reportModel struct {
	first, last map[modelKey]ledger.Closing
}

func (m *reportModel) posted(c ledger.Closing) {
	key := modelKey{c.Account, c.Reservation}
	if _, known := m.first[key]; !known {
		m.first[key] = c
	}
	m.last[key] = c
}

func (m *reportModel) report(q ledger.ReportQuery) []ledger.ReportRow {
	from, to := q.Span()
	var rows []ledger.ReportRow
	add := func(start time.Time, c ledger.Closing, meter quota.Meter, used, held quota.Amount) {
		row := ledger.ReportRow{Start: start, Meter: meter, Used: used, Held: held, Calls: 1}
		for _, name := range q.GroupBy {
			value, present := c.Labels[name]
			if name == "account" {
				value, present = c.Account, true
			}
			row.Group, row.Absent = append(row.Group, value), append(row.Absent, !present)
		}
		for i := range rows {
			if r := &rows[i]; compareRows(*r, row) == 0 {
				r.Used, r.Held, r.Calls = r.Used+used, r.Held+held, r.Calls+1
				return
			}
		}
		rows = append(rows, row)
	}
	for key, last := range m.last {
		first, minted := m.first[key], last.Minted.UTC()
		if minted.Before(from) || !minted.Before(to) || q.Account != "" && q.Account != last.Account {
			continue
		}
		matches := true
		for name, value := range q.Labels {
			got, present := last.Labels[name]
			matches = matches && present && got == value
		}
		if !matches {
			continue
		}
		start := from
		switch q.Grain {
		case ledger.GrainHour:
			start = minted.Truncate(time.Hour)
		case ledger.GrainDay:
			start = time.Date(minted.Year(), minted.Month(), minted.Day(), 0, 0, 0, 0, time.UTC)
		case ledger.GrainMonth:
			start = time.Date(minted.Year(), minted.Month(), 1, 0, 0, 0, 0, time.UTC)
		}
		for _, meter := range reportMeters {
			held, inFirst := totalOf(first, meter, func(l ledger.Line) quota.Amount { return l.Held })
			used, inLast := totalOf(last, meter, func(l ledger.Line) quota.Amount { return l.Amount })
			if !inFirst {
				held, _ = totalOf(last, meter, func(l ledger.Line) quota.Amount { return l.Held })
			}
			if (inFirst || inLast) && (len(q.Meters) == 0 || slices.Contains(q.Meters, meter)) {
				add(start, last, meter, used, held)
			}
		}
	}
	slices.SortFunc(rows, compareRows)
	return rows
}

func totalOf(c ledger.Closing, meter quota.Meter, of func(ledger.Line) quota.Amount) (sum quota.Amount, found bool) {
	for _, line := range c.Lines {
		if line.Limit == "" && line.Meter == meter {
			sum, found = sum+of(line), true
		}
	}
	return sum, found
}

func compareRows(a, b ledger.ReportRow) int {
	order := a.Start.Compare(b.Start)
	for i := range a.Group {
		absent := func(absent bool) int {
			if absent {
				return 0
			}
			return 1
		}
		order = cmp.Or(order, absent(a.Absent[i])-absent(b.Absent[i]), strings.Compare(a.Group[i], b.Group[i]))
	}
	return cmp.Or(order, strings.Compare(string(a.Meter), string(b.Meter)))
}

var reportMeters = []quota.Meter{"cost", "requests", "tokens"}

// reportsAgree appends closings from a small world, so that they meet, and
// compares reports with naive sums of them, between any two steps of rolling.
func reportsAgree(t *testing.T, b *bench) {
	const seeds = 8
	engines := []ledger.Ledger{b.engine(), b.open()}
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 0))
		base := at("2026-11-29 00:00").AddDate(int(seed), 0, 0) // each seed has a time of its own
		m := &reportModel{first: map[modelKey]ledger.Closing{}, last: map[modelKey]ledger.Closing{}}
		for range 3 {
			var batch []ledger.Closing
			for range 1 + random.IntN(12) {
				batch = append(batch, randomClosing(random, base))
			}
			verdicts, err := engines[random.IntN(2)].Append(b.ctx, batch)
			if err != nil {
				t.Fatalf("seed %d: append: %v", seed, err)
			}
			for i, v := range verdicts {
				if v.Posted {
					m.posted(batch[i])
				}
			}
			if random.IntN(2) == 0 {
				b.maintain(engines[random.IntN(2)])
			}
			for range 6 {
				q := randomQuery(random, base)
				want := m.report(q)
				got := b.report(engines[random.IntN(2)], q)
				if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("seed %d: report of %+v (-naive +engine):\n%s", seed, q, diff)
				}
			}
		}
	}
}

// randomClosing is one of few reservations. What a reservation is, its number
// says; how it ends is drawn.
func randomClosing(random *rand.Rand, base time.Time) ledger.Closing {
	number := random.IntN(24)
	fixed := rand.New(rand.NewPCG(uint64(base.Unix()), uint64(number)))
	c := refund(number)
	c.Account = fmt.Sprintf("account-%d", fixed.IntN(2))
	c.Minted = base.Add(time.Duration(fixed.Int64N(int64(5 * 24 * time.Hour))))
	c.ClosedAt = c.Minted.Add(time.Second)
	c.Labels = map[string]string{}
	for _, name := range []string{"model", "route", `odd "näme"`} {
		if value := fixed.IntN(4); value < 3 {
			c.Labels[name] = []string{"", "a", "ä<b>"}[value]
		}
	}
	if random.IntN(2) == 0 {
		c.Rank = ledger.RankExpired
	}
	for _, meter := range reportMeters {
		if random.IntN(4) > 0 {
			c.Lines = append(c.Lines, total(meter, quota.Amount(random.Int64N(100)), quota.Amount(fixed.Int64N(1000))))
		}
	}
	c.Lines = append(c.Lines, ledger.Line{Limit: "spend.0123abcd", Period: "m2026-11-01", Meter: "cost", Amount: 1})
	return c
}

func randomQuery(random *rand.Rand, base time.Time) ledger.ReportQuery {
	instant := func() time.Time { return base.Add(time.Duration(random.Int64N(int64(6 * 24 * time.Hour)))) }
	q := ledger.ReportQuery{From: instant(), To: instant(), Limit: []int{1, 3, ledger.MaxPage}[random.IntN(3)]}
	if q.To.Before(q.From) {
		q.From, q.To = q.To, q.From
	}
	q.To = q.To.Add(1)
	q.Grain = []ledger.Grain{ledger.GrainHour, ledger.GrainDay, ledger.GrainMonth, ledger.GrainTotal}[random.IntN(4)]
	for _, name := range []string{"route", "account", "model", `odd "näme"`, "nobody has it"} {
		if random.IntN(3) == 0 {
			q.GroupBy = append(q.GroupBy, name)
		}
	}
	if random.IntN(3) == 0 {
		q.Account = "account-0"
	}
	if random.IntN(3) == 0 {
		q.Labels = map[string]string{`odd "näme"`: "ä<b>"}
		if random.IntN(2) == 0 {
			q.Labels["model"] = ""
		}
	}
	if random.IntN(3) == 0 {
		q.Meters = []quota.Meter{"tokens", "nobody counts it"}
	}
	return q
}

// reportsDuringRolling appends from several engines while several roll. A
// report never misses what was acknowledged before it, and counts nothing
// twice.
func reportsDuringRolling(t *testing.T, b *bench) {
	const engines, rounds, each = 3, 12, 8
	query := ledger.ReportQuery{From: noon.AddDate(0, 0, -1), To: noon.AddDate(0, 0, 2), Grain: ledger.GrainTotal, Limit: 1}
	var (
		appends, rollers sync.WaitGroup
		mu               sync.Mutex
		acknowledged     int64
	)
	done := make(chan struct{})
	for e := range engines {
		l := b.open()
		appends.Go(func() {
			for round := range rounds {
				var closings []ledger.Closing
				for i := range each {
					c := refund((e*rounds+round)*each+i, total("tokens", 2, 3))
					c.Minted = noon.Add(time.Duration(round) * time.Hour)
					c.Labels = map[string]string{"model": fmt.Sprint(i % 3), "user": fmt.Sprint(round)}
					closings = append(closings, c)
				}
				if _, err := l.Append(b.ctx, closings); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				mu.Lock()
				acknowledged += each
				mu.Unlock()
			}
		})
		rollers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				least := acknowledged
				mu.Unlock()
				page, err := l.Report(b.ctx, query)
				if err == nil {
					_, err = l.Maintain(b.ctx, noon, 0)
				}
				if err != nil {
					t.Errorf("report or maintain: %v", err)
					return
				}
				var row ledger.ReportRow
				if len(page.Rows) > 0 {
					row = page.Rows[0]
				}
				if row.Calls < least || row.Calls > engines*rounds*each || row.Used != quota.Amount(2*row.Calls) || row.Held != quota.Amount(3*row.Calls) {
					t.Errorf("%d calls, used %d, held %d after %d were acknowledged", row.Calls, row.Used, row.Held, least)
				}
			}
		})
	}
	appends.Wait()
	close(done)
	rollers.Wait()
	b.maintain(b.engine())
	for what, q := range map[string]ledger.ReportQuery{
		"days":  query,
		"hours": {From: query.From.Add(time.Hour), To: query.From.Add(47 * time.Hour), Grain: ledger.GrainHour, Limit: ledger.MaxPage},
	} {
		var calls int64
		for _, row := range b.report(b.engine(), q) {
			calls += row.Calls
		}
		if calls != engines*rounds*each {
			t.Errorf("by %s there are %d calls in the end, want %d", what, calls, engines*rounds*each)
		}
	}
}

func reportOverflow(t *testing.T, b *bench) {
	// 600 times 2^53-1 fit into 64 bits, 1200 times do not.
	const each = 600
	var closings []ledger.Closing
	for i := range 2 * each {
		c := refund(i, total("cost", quota.MaxAmount, quota.MaxAmount))
		c.Account = fmt.Sprint("account-", i%2)
		closings = append(closings, c)
	}
	b.append(closings...)
	q := ledger.ReportQuery{From: noon, To: noon.Add(time.Hour), Grain: ledger.GrainHour, Limit: 10}
	check := func(when string) {
		t.Helper()
		if _, err := b.engine().Report(b.ctx, q); !errors.Is(err, quota.ErrOverflow) || errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("%s: error %v, want ErrOverflow", when, err)
		}
		byAccount := q
		byAccount.GroupBy = []string{"account"}
		for _, row := range b.report(b.engine(), byAccount) {
			if row.Used != each*quota.MaxAmount || row.Held != each*quota.MaxAmount || row.Calls != each {
				t.Errorf("%s: %+v", when, row)
			}
		}
	}
	check("at once")
	b.maintain(b.engine())
	check("rolled up")

	// What was held stays at its end, and keeps no closing out.
	for round := range 2 {
		closings = closings[:0]
		for i := range each {
			c := refund((round+1)*2000+i, total("tokens", 1, quota.MaxAmount))
			closings = append(closings, c)
		}
		b.append(closings...)
		b.maintain(b.engine())
	}
	q.Account = spend.Account
	want := []ledger.ReportRow{{Start: noon, Group: []string{}, Absent: []bool{}, Meter: "tokens", Used: 2 * each, Held: math.MaxInt64, Calls: 2 * each}}
	b.same("held", b.report(b.engine(), q), want)
}

func reportsOutOfBounds(t *testing.T, b *bench) {
	sound := ledger.ReportQuery{From: noon, To: noon.Add(time.Hour), Grain: ledger.GrainHour, Limit: 1}
	for field, change := range map[string]func(*ledger.ReportQuery){
		"account: contains a NUL":       func(q *ledger.ReportQuery) { q.Account = "a\x00" },
		"from: 1969":                    func(q *ledger.ReportQuery) { q.From = ledger.MinInstant.Add(-1) },
		"to: 9999":                      func(q *ledger.ReportQuery) { q.To = ledger.EndInstant.Add(1) },
		"to: 2026":                      func(q *ledger.ReportQuery) { q.To = q.From },
		"to: the span has 9601 hours":   func(q *ledger.ReportQuery) { q.To = q.From.Add(ledger.MaxHourlySpan + 1) },
		`grain: "year" is none of`:      func(q *ledger.ReportQuery) { q.Grain = "year" },
		"group_by: 9 labels":            func(q *ledger.ReportQuery) { q.GroupBy = strings.Split("a b c d e f g h i", " ") },
		"group_by[1]: is empty":         func(q *ledger.ReportQuery) { q.GroupBy = []string{"a", ""} },
		`group_by[2]: "a" is stated`:    func(q *ledger.ReportQuery) { q.GroupBy = []string{"a", "b", "a"} },
		`labels["a"]: value: is not va`: func(q *ledger.ReportQuery) { q.Labels = map[string]string{"a": "\xff"} },
		"meters: 33 are stated":         func(q *ledger.ReportQuery) { q.Meters = make([]quota.Meter, quota.MaxMeters+1) },
		"meters[0]: is empty":           func(q *ledger.ReportQuery) { q.Meters = make([]quota.Meter, 1) },
		"limit: 0 is not":               func(q *ledger.ReportQuery) { q.Limit = 0 },
		"limit: 10001 is not":           func(q *ledger.ReportQuery) { q.Limit = ledger.MaxPage + 1 },
		"after: is none":                func(q *ledger.ReportQuery) { q.After = "next" },
	} {
		q := sound
		change(&q)
		if _, err := b.engine().Report(b.ctx, q); !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v, want ErrInvalid about %s", err, field)
		}
	}
	if _, err := b.engine().Maintain(b.ctx, noon, -1); !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error(), "retention: ") {
		t.Errorf("a negative retention: error %v", err)
	}
	widest := ledger.ReportQuery{From: ledger.MinInstant, To: ledger.EndInstant, Grain: ledger.GrainMonth, Limit: ledger.MaxPage, GroupBy: strings.Split("a b c d e f g h", " ")}
	b.same("the widest report", b.report(b.engine(), widest), []ledger.ReportRow(nil))
}
