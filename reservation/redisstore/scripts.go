package redisstore

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script names one of the engine's scripts.
type script int

const (
	scriptReserve script = iota
	scriptRefund
	scriptRenew
	scriptConfirm
	scriptSeed
	scriptSweep
	scriptLookup
	scriptLevels
	scriptRestore
	scriptEpoch
	scriptOpen
	scriptPush
	scriptAudit
	scriptGiveBack
	scriptLeave
	scriptCount
)

var scriptNames = [scriptCount]string{"reserve", "refund", "renew", "confirm", "seed", "sweep", "lookup", "levels", "restore", "epoch", "open", "push", "audit", "giveback", "leave"}

func (s script) String() string { return scriptNames[s] }

// modules are the files that every script is made of, in order, after the
// prelude. The layout's file is apart: a test composes another.
var modules = []string{"layout", "arithmetic", "account", "start", "bucket", "gcra", "fair", "window", "line", "slots", "quota", "record", "tree", "reclaim"}

// more are modules that only some scripts need: defining a function costs 0.1 us.
var more = map[script][]string{scriptReserve: {"refusals"}, scriptLevels: {"refusals"}}

// hot names the files that take a script's usual case.
var hot = map[script]string{scriptReserve: "reserve_hot", scriptRefund: "refund_hot"}

// compose returns the text of a script for one incarnation: the prelude, the
// usual case if the script has one, and everything else in one function. replace
// gives the text of modules that differ from the embedded ones; unless it is
// nil the usual case is left out, as it knows only the embedded ones.
func compose(s script, generation uint64, replace map[string]string) string {
	var b strings.Builder
	b.WriteString("local GEN = ")
	b.WriteString(strconv.FormatUint(generation, 10))
	b.WriteByte('\n')
	b.WriteString(luaFile("prelude"))
	usual := hot[s]
	if replace != nil {
		usual = ""
	}
	if usual != "" {
		b.WriteString(luaFile(usual))
	}
	// A function of its own, as one may have 200 locals, those of the prelude among them.
	b.WriteString("local function general()\n")
	for _, name := range slices.Concat(modules, more[s], []string{s.String()}) {
		text, replaced := replace[name]
		if !replaced {
			text = luaFile(name)
		}
		b.WriteString(text)
	}
	b.WriteString("end\nreturn general()\n")
	return b.String()
}

func luaFile(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		// The name is one of this file's constants: a missing file fails the build's first test.
		return "error('no module " + name + "')\n"
	}
	return string(text)
}

// digest is the name under which Redis keeps a script.
func digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
