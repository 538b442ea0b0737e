package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/simulate"
)

const simulateHelp = `Shows what limits let through, with the engine of this program on a clock that
goes from event to event. The same --seed gives the same figures. docs/simulate.md
says what is modelled and what is not.

With --check it compares what it finds with what is known, says every figure, and
exits with 1 when one differs. Flags without a scenario are for all of them.`

// simulateFlags are common to all scenarios.
type simulateFlags struct {
	simulate.Options
	html        string
	check, json bool
}

func newSimulateCommand(s streams) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Show what algorithms, fleets, fair shares and ways of holding let through",
		Long:  simulateHelp,
		Example: `  budgetd simulate race
  budgetd simulate all --html limits.html
  budgetd simulate holds --traces ./azure-llm-2023
  budgetd simulate --check`,
		Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().NFlag() == 0 {
				return cmd.Help()
			}
			return f.run(s, simulate.Scenarios()) // with flags and no scenario: all
		},
	}
	p := cmd.PersistentFlags()
	p.Uint64Var(&f.Seed, "seed", 1, "of all traffic")
	p.StringVar(&f.html, "html", "", "write a page with tables and charts to this `file`; it loads nothing from elsewhere")
	p.BoolVar(&f.check, "check", false, "compare with what is known, and exit with 1 where it differs")
	p.BoolVar(&f.json, "json", false, "print JSON")
	for _, scenario := range simulate.Scenarios() {
		one := f.command(s, scenario.Name, scenario.Title, scenario.Help, []simulate.Scenario{scenario})
		if scenario.Name == "holds" {
			f.addTraces(one)
		}
		cmd.AddCommand(one)
	}
	all := f.command(s, "all", "All of them", "All scenarios, one after the other.", simulate.Scenarios())
	f.addTraces(cmd)
	f.addTraces(all)
	cmd.AddCommand(all)
	return cmd
}

// addTraces adds the flag of the one scenario that plays traces.
func (f *simulateFlags) addTraces(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Traces, "traces", "", "`folder` with code.csv and conv.csv for the scenario holds; generated if not given")
}

func (f *simulateFlags) command(s streams, name, short, long string, scenarios []simulate.Scenario) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Long: long, Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error { return f.run(s, scenarios) },
	}
}

// run runs scenarios and shows what they found.
func (f *simulateFlags) run(s streams, scenarios []simulate.Scenario) error {
	var page *os.File
	if f.html != "" {
		var err error
		if page, err = os.Create(f.html); err != nil {
			return fmt.Errorf("--html: %w; write to a folder that exists", err)
		}
		defer page.Close()
	}
	var reports []*simulate.Report
	differ := 0
	for _, scenario := range scenarios {
		report, err := scenario.Run(f.Options)
		if err != nil {
			return err
		}
		reports = append(reports, report)
		differ += len(report.Differs())
		if !f.json {
			f.show(s.out, report)
		}
	}
	if f.json {
		if err := json.NewEncoder(s.out).Encode(reports); err != nil {
			return err
		}
	}
	if page != nil {
		if err := errors.Join(simulate.WritePage(page, reports), page.Close()); err != nil {
			return err
		}
	}
	if f.check && differ > 0 {
		return fmt.Errorf("simulate: %d figures differ from what is known", differ)
	}
	return nil
}

// show prints the tables of a report for people, or its checks.
func (f *simulateFlags) show(out io.Writer, r *simulate.Report) {
	fmt.Fprintf(out, "%s (simulate %s --seed %d)\n", r.Title, r.Scenario, r.Seed)
	if f.check {
		for _, check := range r.Checks {
			word := "ok     "
			if !check.Holds {
				word = "DIFFERS"
			}
			fmt.Fprintf(out, "%s %s\n", word, check)
		}
		fmt.Fprintln(out)
		return
	}
	for _, note := range r.Notes {
		fmt.Fprintln(out, note)
	}
	for _, shown := range r.Tables {
		fmt.Fprintf(out, "\n%s\n", shown.Title)
		showSimulated(out, shown)
	}
	fmt.Fprintln(out)
}

func showSimulated(out io.Writer, shown simulate.Table) {
	header := make([]any, len(shown.Header))
	var figures []int
	for i, name := range shown.Header {
		header[i] = name
		if simulate.IsFigure(shown.Rows[0][i]) {
			figures = append(figures, i+1)
		}
	}
	t := newTable(out, header...)
	t.SetColumnConfigs(rightAligned(figures...))
	for _, cells := range shown.Rows {
		row := make(table.Row, len(cells))
		for i, cell := range cells {
			row[i] = simulate.Cell(cell)
		}
		t.AppendRow(row)
	}
	t.Render()
}
