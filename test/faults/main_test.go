package faults

import (
	"flag"
	"testing"
	"time"

	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

var (
	seed = flag.Uint64("seed", 0, "decides the order of the faults and the traffic; 0: another one each time")
	span = flag.Duration("span", time.Minute, "how long traffic and faults go on")
)

func TestMain(m *testing.M) { broker.Main(servers.Stopping(m)) }
