package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// openAdmin is open for the calls of operators: the key must be an admin's.
func (c *connection) openAdmin(cmd *cobra.Command) (budgetv1connect.AdminServiceClient, error) {
	client, err := c.open(cmd)
	if err != nil {
		return nil, err
	}
	return client.Admin(), nil
}

// pageOfLists is how many rows the commands ask for at a time.
const pageOfLists = 1000

// walkPages asks for page after page, from the one of the token "" to the one
// that names no next.
func walkPages(page func(token string) (next string, err error)) error {
	for token := ""; ; {
		next, err := page(token)
		if err != nil || next == "" {
			return err
		}
		token = next
	}
}

// parseInstant reads a point in time as people write it: a date, an instant of
// RFC 3339, "now", "-36h" or "-7d" before now, "today", "this-month" and
// "last-month" in UTC. "" is the zero time.
func parseInstant(text string, now time.Time) (time.Time, error) {
	now = now.UTC()
	year, month, day := now.Date()
	switch text {
	case "":
		return time.Time{}, nil
	case "now":
		return now, nil
	case "today":
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC), nil
	case "this-month":
		return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC), nil
	case "last-month":
		return time.Date(year, month-1, 1, 0, 0, 0, 0, time.UTC), nil
	}
	if back, ok := strings.CutPrefix(text, "-"); ok {
		if days, whole := strings.CutSuffix(back, "d"); whole {
			var n int
			if _, err := fmt.Sscanf(days+";", "%d;", &n); err == nil && n >= 0 && n <= 36500 {
				return now.AddDate(0, 0, -n), nil
			}
		} else if d, err := time.ParseDuration(back); err == nil && d >= 0 {
			return now.Add(-d), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no point in time; write a date (2026-12-01), an instant (2026-12-01T09:00:00Z), -36h, -7d, today, this-month or last-month", text)
}

// showLabels prints labels in the order of the names given, "-" for one that is
// absent.
func showLabels(names []string, labels map[string]string) []any {
	cells := make([]any, len(names))
	for i, name := range names {
		cells[i] = "-"
		if value, stated := labels[name]; stated {
			cells[i] = value
		}
	}
	return cells
}

// showAllLabels prints labels by name, "route=chat user=7", "-" for none.
func showAllLabels(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return cmp.Or(strings.Join(parts, " "), "-")
}

// showHeld prints what a reservation holds, "tokens 4,000, spend $0.25".
func showHeld(holds []*budgetv1.Hold) string {
	var parts []string
	for _, hold := range holds {
		parts = append(parts, hold.Limit+" "+showAmount(hold.Meter, hold.Amount))
	}
	return strings.Join(parts, ", ")
}
