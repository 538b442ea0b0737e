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
` + "`" + ofBroker.shownFile() + "`" + ` (` + "`~/.config`" + ` where XDG_CONFIG_HOME is
not set) if there is one. An unknown or doubled setting is refused, and so is a
value out of its bounds: ` + "`budgetd config check`" + ` says what is wrong, with the
place of each fault, without starting anything. A broker whose configuration is
refused ends with exit code 78.

Times have a unit: 500ms, 10s, 5m, 24h. Passwords in URLs are never printed,
logged or put in metrics.

| setting | default | accepted |
| --- | --- | --- |
`)
	ofBroker.document(&text)
	text.WriteString(`
# Configuration of budgetd proxy

The same rules, with names of its own: the variables begin with
` + "`BUDGETD_PROXY_`" + `, and the file is the one that ` + "`--config`" + ` or
` + "`" + ofProxy.env + "`" + ` names, else ` + "`" + ofProxy.shownFile() + "`" + `.
[proxy.md](proxy.md) has what it is for.

| setting | default | accepted |
| --- | --- | --- |
`)
	ofProxy.document(&text)
	return text.String()
}

// document writes the rows of a table whose head is written, and a section for
// each setting.
func (t table[C]) document(text *strings.Builder) {
	anchor := func(name string) string { return strings.ToLower(t.settings[0].prefix) + name }
	for _, s := range t.settings {
		fmt.Fprintf(text, "| [%s](#%s) | %s | %s |\n", s.Name, anchor(s.Name), shownValue(s.ShownDefault()), strings.ReplaceAll(s.Bound, "|", "\\|"))
	}
	for _, s := range t.settings {
		fmt.Fprintf(text, "\n## %s\n\n%s\n\n", anchor(s.Name), s.Doc)
		fmt.Fprintf(text, "- default: %s\n- accepted: %s\n- environment: `%s`; flag: `--%s`\n", shownValue(s.ShownDefault()), s.Bound, s.Env(), s.Flag())
	}
}

func shownValue(value string) string {
	if value == "" {
		return "none"
	}
	return "`" + value + "`"
}
