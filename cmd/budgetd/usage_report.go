package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
)

// reportFlags are what a report of usage is asked with.
type reportFlags struct {
	to       connection
	account  string
	from     string
	until    string
	by       string
	groupBy  []string
	labels   []string
	meters   []string
	format   string
	heldOnly bool
}

var reportGrains = map[string]budgetv1.UsageGrain{
	"hour": budgetv1.UsageGrain_USAGE_GRAIN_HOUR, "day": budgetv1.UsageGrain_USAGE_GRAIN_DAY,
	"month": budgetv1.UsageGrain_USAGE_GRAIN_MONTH, "total": budgetv1.UsageGrain_USAGE_GRAIN_TOTAL,
}

func newUsageCommand(s streams) *cobra.Command {
	f := &reportFlags{}
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Report what was used, by time and by any label",
		Long: `Sums up what was used, by hour, day or month of UTC, split by any labels of the
calls. A call counts at the instant at which it was reserved.

--held compares what reservations held with what they used: who asks for a
max_tokens of 8,000 and gets 500 back, keeps others out of limits for nothing. It
splits by route unless --group-by says otherwise. A table has the worst ratio
first.

--format csv and jsonl print every row as it comes, in order of time and labels,
for other programs: CSV as in RFC 4180, JSON one object a line with whole numbers
as strings. The unit is stated with each row: cost is in nano_usd there.`,
		Example: `  budgetd usage --account acme --from this-month --by day
  budgetd usage --from -7d --by total --group-by account,model --meter cost
  budgetd usage --account acme --from last-month --to this-month --format csv > usage.csv
  budgetd usage --account acme --from -7d --held`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s) },
	}
	f.to.addFlags(cmd)
	cmd.Flags().StringVar(&f.account, "account", "", "whose; else the key's only one, or, with a key for all, everybody's")
	cmd.Flags().StringVar(&f.from, "from", "this-month", "first `instant`: a date, RFC 3339, -36h, -7d, today, this-month, last-month")
	cmd.Flags().StringVar(&f.until, "to", "now", "`instant` at which it ends")
	cmd.Flags().StringVar(&f.by, "by", "", "`span` of a row: hour, day, month or total (day unless stated; total with --held)")
	cmd.Flags().StringSliceVar(&f.groupBy, "group-by", nil, "split by these labels, or by account, as `model,route`")
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "only calls with this label, `name=value`; repeat for more")
	cmd.Flags().StringSliceVar(&f.meters, "meter", nil, "only these `meters`")
	cmd.Flags().StringVar(&f.format, "format", "", "`form` of the rows: table, csv or jsonl; a table on a terminal and jsonl elsewhere unless stated")
	cmd.Flags().BoolVar(&f.heldOnly, "held", false, "compare what was held with what was used")
	return cmd
}

func (f *reportFlags) run(cmd *cobra.Command, s streams) error {
	request, err := f.request(cmd)
	if err != nil {
		return err
	}
	write, err := f.writer(cmd, s, request)
	if err != nil {
		return err
	}
	client, err := f.to.open(cmd)
	if err != nil {
		return err
	}
	rows := 0
	err = walkPages(func(token string) (string, error) {
		request.PageToken = token
		answer, err := client.Service().ListUsage(cmd.Context(), connect.NewRequest(request))
		if err != nil {
			return "", f.to.explain(err)
		}
		rows += len(answer.Msg.Rows)
		for _, row := range answer.Msg.Rows {
			if err := write.row(row); err != nil {
				return "", err
			}
		}
		return answer.Msg.NextPageToken, nil
	})
	if err != nil {
		return err
	}
	if rows == 0 {
		fmt.Fprintln(s.err, "budgetd: note: nothing matches: no usage of this span, with these labels and meters")
	}
	return write.end()
}

func (f *reportFlags) request(cmd *cobra.Command) (*budgetv1.ListUsageRequest, error) {
	request := &budgetv1.ListUsageRequest{Account: f.account, GroupBy: f.groupBy, Meters: f.meters, PageSize: 10_000}
	by := f.by
	if f.heldOnly {
		by = cmp.Or(by, "total")
		if len(request.GroupBy) == 0 {
			request.GroupBy = []string{"route"}
		}
	}
	grain, known := reportGrains[cmp.Or(by, "day")]
	if !known {
		return nil, usagef(cmd, "--by %q: want hour, day, month or total", by)
	}
	request.Grain = grain
	var err error
	if request.Labels, err = parseLabels(cmd, f.labels); err != nil {
		return nil, err
	}
	now := time.Now()
	from, err := parseInstant(f.from, now)
	if err != nil {
		return nil, usagef(cmd, "--from: %v", err)
	}
	until, err := parseInstant(f.until, now)
	if err != nil {
		return nil, usagef(cmd, "--to: %v", err)
	}
	request.From, request.To = timestamppb.New(from), timestamppb.New(until)
	return request, nil
}

// reportWriter prints rows as they come.
type reportWriter struct {
	row func(*budgetv1.UsageRow) error
	end func() error
}

func (f *reportFlags) writer(cmd *cobra.Command, s streams, request *budgetv1.ListUsageRequest) (reportWriter, error) {
	format, labels := f.format, request.GroupBy
	if format == "" {
		format = "table"
		if wantsJSON(cmd, f.to.json, s.out) {
			format = "jsonl"
		}
	}
	switch format {
	case "table":
		if f.heldOnly {
			return heldTable(s.out, labels, request.Grain != budgetv1.UsageGrain_USAGE_GRAIN_TOTAL), nil
		}
		return usageTable(s.out, labels), nil
	case "csv":
		return usageCSV(s.out, labels)
	case "jsonl":
		return usageLines(s.out), nil
	}
	return reportWriter{}, usagef(cmd, "--format %q: want table, csv or jsonl", f.format)
}

func usageTable(out io.Writer, labels []string) reportWriter {
	header := []any{"START"}
	for _, name := range labels {
		header = append(header, name)
	}
	t := newTable(out, append(header, "METER", "USED", "HELD", "CALLS")...)
	return reportWriter{
		row: func(row *budgetv1.UsageRow) error {
			cells := append([]any{showInstant(row.Start)}, showLabels(labels, row.Labels)...)
			t.AppendRow(append(cells, row.Meter, showAmount(row.Meter, row.Used), showAmount(row.Meter, row.Held), showAmount("", row.Calls)))
			return nil
		},
		end: func() error { t.Render(); return nil },
	}
}

// heldTable shows the worst ratio first, each with its start unless there is one
// span. What held nothing, such as cost of
// calls without a model, is left out.
func heldTable(out io.Writer, labels []string, spans bool) reportWriter {
	var rows []*budgetv1.UsageRow
	ratio := func(row *budgetv1.UsageRow) float64 { return float64(row.Held) / float64(max(row.Used, 1)) }
	return reportWriter{
		row: func(row *budgetv1.UsageRow) error {
			if row.Held > 0 {
				rows = append(rows, row)
			}
			return nil
		},
		end: func() error {
			slices.SortStableFunc(rows, func(a, b *budgetv1.UsageRow) int { return cmp.Compare(ratio(b), ratio(a)) })
			var header []any
			if spans {
				header = append(header, "START")
			}
			for _, name := range labels {
				header = append(header, name)
			}
			t := newTable(out, append(header, "METER", "HELD", "USED", "CALLS", "HELD PER USED")...)
			for _, row := range rows {
				shown := "nothing used"
				if row.Used > 0 {
					shown = fmt.Sprintf("%.1fx", ratio(row))
				}
				var cells []any
				if spans {
					cells = append(cells, showInstant(row.Start))
				}
				cells = append(cells, showLabels(labels, row.Labels)...)
				t.AppendRow(append(cells, row.Meter, showAmount(row.Meter, row.Held), showAmount(row.Meter, row.Used), showAmount("", row.Calls), shown))
			}
			t.Render()
			return nil
		},
	}
}

// usageCSV writes RFC 4180. A label that is absent is an empty field.
func usageCSV(out io.Writer, labels []string) (reportWriter, error) {
	w := csv.NewWriter(out)
	w.UseCRLF = true
	header := append(append([]string{"start"}, labels...), "meter", "unit", "used", "held", "calls")
	return reportWriter{
		row: func(row *budgetv1.UsageRow) error {
			cells := []string{showInstant(row.Start)}
			for _, name := range labels {
				cells = append(cells, row.Labels[name])
			}
			return w.Write(append(cells, row.Meter, unitOf(row.Meter), strconv.FormatInt(row.Used, 10), strconv.FormatInt(row.Held, 10), strconv.FormatInt(row.Calls, 10)))
		},
		end: func() error { w.Flush(); return w.Error() },
	}, w.Write(header)
}

// unitOf is what an amount of a meter is counted in.
func unitOf(meter string) string {
	if meter == string(quota.MeterCost) {
		return "nano_usd"
	}
	return meter
}

// usageLines writes one JSON object a line.
func usageLines(out io.Writer) reportWriter {
	type line struct {
		Start  time.Time         `json:"start"`
		Labels map[string]string `json:"labels,omitempty"`
		Meter  string            `json:"meter"`
		Unit   string            `json:"unit"`
		Used   int64             `json:"used,string"`
		Held   int64             `json:"held,string"`
		Calls  int64             `json:"calls,string"`
	}
	encoder := json.NewEncoder(out)
	return reportWriter{
		row: func(row *budgetv1.UsageRow) error {
			return encoder.Encode(line{row.Start.AsTime(), row.Labels, row.Meter, unitOf(row.Meter), row.Used, row.Held, row.Calls})
		},
		end: func() error { return nil },
	}
}
