package main

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/budgetd/budgetd/quota"
)

// newTable makes a table in the one style of this program: no borders, so that
// columns can be cut and copied.
func newTable(out io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = 0
	t.Style().Box.PaddingLeft = ""
	t.Style().Box.PaddingRight = "  "
	t.AppendHeader(table.Row(header))
	return t
}

// rightAligned sets columns of numbers to the right.
func rightAligned(columns ...int) []table.ColumnConfig {
	configs := make([]table.ColumnConfig, len(columns))
	for i, column := range columns {
		configs[i] = table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	return configs
}

// showTime prints an instant: RFC 3339 to seconds, in UTC, as everywhere.
func showTime(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

// showInstant is showTime for an instant of an answer.
func showInstant(at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	return showTime(at.AsTime())
}

// showAmount prints an amount for people: money in dollars, counts with
// separators.
func showAmount(meter string, amount int64) string {
	if meter == string(quota.MeterCost) {
		return quota.NanoUSD(amount).String()
	}
	digits := strconv.FormatInt(amount, 10)
	sign := ""
	if amount < 0 {
		sign, digits = "-", digits[1:]
	}
	var grouped strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			grouped.WriteByte(',')
		}
		grouped.WriteRune(digit)
	}
	return sign + grouped.String()
}
