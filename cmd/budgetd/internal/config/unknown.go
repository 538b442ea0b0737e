package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// EnvServer and EnvKey name the variables that commands read which ask a broker.
const (
	EnvServer = "BUDGETD_SERVER"
	EnvKey    = "BUDGETD_KEY"
)

// notOurs are variables that begin with BUDGETD_ and that others made: those of the
// tests, and those that Kubernetes and Docker give every container for a service
// named budgetd or budgetd-something.
var notOurs = regexp.MustCompile(`^BUDGETD_TEST_|_SERVICE_(HOST|PORT)(_|$)|_PORT(_\d+_(TCP|UDP|SCTP)(_|$)|$)`)

// maxUnknown bounds what UnknownVariables returns.
const maxUnknown = 10

// UnknownVariables returns a sentence for each variable of an environment, as
// os.Environ has it, that begins with BUDGETD_ and that nothing reads: at most
// ten. Values are not told, and a variable that is empty counts as not set.
func UnknownVariables(environ []string) []string {
	known := []string{EnvServer, EnvKey, ofBroker.env, ofProxy.env}
	for _, s := range ofBroker.settings {
		known = append(known, s.Env())
	}
	for _, s := range ofProxy.settings {
		known = append(known, s.Env())
	}
	var found []string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && strings.HasPrefix(name, "BUDGETD_") && !slices.Contains(known, name) && !notOurs.MatchString(name) && len(found) < maxUnknown {
			found = append(found, fmt.Sprintf("the environment variable %.80q is no setting", name)+didYouMean(name, known))
		}
	}
	slices.Sort(found)
	return found
}
