package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// replayBar shows a replay's progress to a person, and nothing elsewhere.
type replayBar struct {
	out   io.Writer // nil: no terminal
	bytes bool      // a step is a byte
	bar   *progressbar.ProgressBar
}

func newReplayBar(out io.Writer) *replayBar {
	if !onTerminal(out) || os.Getenv("TERM") == "dumb" {
		return &replayBar{}
	}
	return &replayBar{out: out}
}

// Stage implements replay.Progress. It is called by one goroutine, while none
// calls Add.
func (b *replayBar) Stage(what string, steps int64) {
	if b.out == nil {
		return
	}
	b.finish()
	counted := steps > 0
	if !counted {
		steps = -1 // a spinner
	}
	// https://no-color.org: any value but the empty one turns colour off.
	colour := os.Getenv("NO_COLOR") == ""
	options := []progressbar.Option{
		progressbar.OptionSetWriter(b.out),
		progressbar.OptionSetDescription(what),
		progressbar.OptionEnableColorCodes(colour),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(true),
	}
	if counted {
		options = append(options, progressbar.OptionShowCount())
	}
	if b.bytes {
		options = append(options, progressbar.OptionShowBytes(true))
	}
	b.bar = progressbar.NewOptions64(steps, options...)
}

// Add implements replay.Progress.
func (b *replayBar) Add(steps int) {
	if b.bar != nil {
		_ = b.bar.Add(steps) // a bar that can't be drawn is no reason to stop
	}
}

func (b *replayBar) finish() {
	if b.bar != nil {
		_ = b.bar.Finish()
		b.bar = nil
	}
}
