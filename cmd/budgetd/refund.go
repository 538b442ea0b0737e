package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/spf13/cobra"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newRefundCommand(s streams) *cobra.Command {
	var (
		to      connection
		amounts []string
		unused  bool
		used    usedFlags
	)
	cmd := &cobra.Command{
		Use:   "refund RESERVATION_ID",
		Short: "Report what a call used and give back the rest",
		Long: `Closes a reservation: what was held above the usage goes back, what was used above
the hold is charged. A meter that was held and is not reported counts as used in
full. Repeating a refund is safe and gives the first answer.`,
		Example: `  budgetd refund ID --amount tokens=1600
  budgetd refund ID --input 200 --cache-read 800 --output 100
  budgetd refund ID --input 200 --output 100 --searches 2 --tier batch
  budgetd refund ID --duration 1m30s
  budgetd refund ID --unused`,
		Args: exactArgs("RESERVATION_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			usage := budget.Usage{Unused: unused}
			if cmd.Flags().Changed("amount") {
				var err error
				if usage.Amounts, err = parseAmounts(cmd, "amount", amounts); err != nil {
					return err
				}
			}
			if err := used.read(cmd, &usage); err != nil {
				return err
			}
			if !unused && usage.Amounts == nil && usage.Tokens == nil && usage.Units == nil {
				return usagef(cmd, "say what was used with --amount, token classes or units, or --unused")
			}
			client, err := to.open(cmd)
			if err != nil {
				return err
			}
			answer, err := client.Refund(cmd.Context(), args[0], usage)
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer)
			}
			showReceipt(s, answer)
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringArrayVar(&amounts, "amount", nil, "what was used, `meter=amount`; repeat for more")
	cmd.Flags().BoolVar(&unused, "unused", false, "the call was not made: give everything back")
	used.add(cmd)
	return cmd
}

// usedFlags are the flags that say what a call used by class and unit, and how it
// was served.
type usedFlags struct {
	classes  budgetv1.TokenClasses
	units    budgetv1.BilledUnits
	served   budgetv1.ServedAs
	duration time.Duration
	counts   []*countFlag
}

// countFlag is a flag with the field that it fills.
type countFlag struct {
	name  string
	to    **int64
	unit  bool // of BilledUnits, not of TokenClasses
	value int64
}

func (f *usedFlags) add(cmd *cobra.Command) {
	unit := false
	count := func(to **int64, name, help string) {
		flag := &countFlag{name: name, to: to, unit: unit}
		cmd.Flags().Int64Var(&flag.value, name, 0, help)
		f.counts = append(f.counts, flag)
	}
	c, u := &f.classes, &f.units
	count(&c.Input, "input", "input tokens of text that no cache had part in")
	count(&c.InputAudio, "input-audio", "input tokens of sound")
	count(&c.InputImage, "input-image", "input tokens of pictures")
	count(&c.InputVideo, "input-video", "input tokens of video")
	count(&c.CacheRead, "cache-read", "input tokens read from the provider's cache")
	count(&c.CacheReadAudio, "cache-read-audio", "input tokens of sound read from the cache")
	count(&c.CacheReadImage, "cache-read-image", "input tokens of pictures read from the cache")
	count(&c.CacheWrite, "cache-write", "input tokens written to the provider's cache")
	count(&c.CacheWriteHour, "cache-write-hour", "input tokens written to a cache that lasts an hour")
	count(&c.Output, "output", "output tokens of text without reasoning")
	count(&c.OutputAudio, "output-audio", "output tokens of sound")
	count(&c.OutputImage, "output-image", "output tokens of pictures")
	count(&c.OutputVideo, "output-video", "output tokens of video")
	count(&c.Reasoning, "reasoning", "output tokens spent on reasoning")
	unit = true
	count(&u.Images, "images", "pictures made or read, where they are billed one by one")
	count(&u.Pages, "pages", "pages of documents read")
	count(&u.Searches, "searches", "searches that the provider ran")
	count(&u.Requests, "requests", "calls, where the provider has a price for the call itself")
	cmd.Flags().DurationVar(&f.duration, "duration", 0, "of sound or video made or read, such as 1m30s, where it is billed by the second")
	cmd.Flags().StringVar(&f.served.Tier, "tier", "", "service tier in the provider's answer, such as batch, flex or priority")
	cmd.Flags().StringVar(&f.served.Speed, "speed", "", "speed in the provider's answer, such as fast")
}

// read takes what was stated over into a usage.
func (f *usedFlags) read(cmd *cobra.Command, usage *budget.Usage) error {
	for _, flag := range f.counts {
		if !cmd.Flags().Changed(flag.name) {
			continue
		}
		*flag.to = &flag.value
		if flag.unit {
			usage.Units = &f.units
		} else {
			usage.Tokens = &f.classes
		}
	}
	if cmd.Flags().Changed("duration") {
		if f.duration < 0 {
			return usagef(cmd, "--duration: %s is negative", f.duration)
		}
		milliseconds := int64((f.duration + time.Millisecond - 1) / time.Millisecond)
		f.units.Milliseconds, usage.Units = &milliseconds, &f.units
	}
	if f.served.Tier == "" && f.served.Speed == "" {
		return nil
	}
	if usage.Tokens == nil && usage.Units == nil {
		return usagef(cmd, "--tier and --speed decide the price of token classes or units: state those too")
	}
	usage.Served = &f.served
	return nil
}

func showReceipt(s streams, m *budgetv1.RefundResponse) {
	if m.Late {
		fmt.Fprintln(s.out, "late: the lease had ended; charged all the same")
	}
	if m.Replayed {
		fmt.Fprintln(s.out, "known already: this is the first answer")
	}
	meters := map[string]bool{}
	for _, amounts := range []map[string]int64{m.Charged, m.GivenBack, m.Overrun} {
		for meter := range amounts {
			meters[meter] = true
		}
	}
	names := make([]string, 0, len(meters))
	for meter := range meters {
		names = append(names, meter)
	}
	sort.Strings(names)
	t := newTable(s.out, "METER", "CHARGED", "GIVEN BACK", "OVERRUN")
	for _, meter := range names {
		t.AppendRow([]any{meter, showAmount(meter, m.Charged[meter]), showAmount(meter, m.GivenBack[meter]), showAmount(meter, m.Overrun[meter])})
	}
	t.Render()
	showHolds(s, m.Holds)
}
