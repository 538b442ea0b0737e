package config

import (
	"fmt"
	"strings"
)

// Documentation returns docs/configuration.md, made from the table of settings.
func Documentation() string {
	var text strings.Builder
	text.WriteString(`# Configuration

<!-- Made from the table in cmd/budgetd/internal/config by
     go test ./cmd/budgetd/internal/config -run Documentation -update -->

Each setting has one name in three spellings. shutdown_grace, for example:

| where | how |
| --- | --- |
| in the file | ` + "`shutdown_grace: 10s`" + ` |
| in the environment | ` + "`BUDGETD_SHUTDOWN_GRACE=10s`" + ` |
| as a flag of ` + "`budgetd serve`" + ` | ` + "`--shutdown-grace 10s`" + ` |

A flag wins over the environment, the environment over the file, the file over
the default. A variable that is empty counts as not set.

The file is YAML, one ` + "`setting: value`" + ` a line. It is the one that
` + "`--config`" + ` or ` + "`BUDGETD_CONFIG`" + ` names, else
` + "`" + shownDefaultFile + "`" + ` (` + "`~/.config`" + ` where XDG_CONFIG_HOME is
not set) if there is one. An unknown or doubled setting is refused, and so is a
value out of its bounds: ` + "`budgetd config check`" + ` says what is wrong, with the
place of each fault, without starting anything. A broker whose configuration is
refused ends with exit code 78.

Times have a unit: 500ms, 10s, 5m, 24h. Passwords in URLs are never printed,
logged or put in metrics.

| setting | default | accepted |
| --- | --- | --- |
`)
	for _, s := range settings {
		fmt.Fprintf(&text, "| [%s](#%s) | %s | %s |\n", s.Name, s.Name, shownValue(s.ShownDefault()), strings.ReplaceAll(s.Bound, "|", "\\|"))
	}
	for _, s := range settings {
		fmt.Fprintf(&text, "\n## %s\n\n%s\n\n", s.Name, s.Doc)
		fmt.Fprintf(&text, "- default: %s\n- accepted: %s\n- environment: `%s`; flag: `--%s`\n", shownValue(s.ShownDefault()), s.Bound, s.Env(), s.Flag())
	}
	return text.String()
}

func shownValue(value string) string {
	if value == "" {
		return "none"
	}
	return "`" + value + "`"
}
