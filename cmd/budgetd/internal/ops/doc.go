// Package ops is what an operator sees of a running broker: metrics, health,
// readiness and profiles, and the servers with their timeouts and TLS.
//
//	/metrics       Prometheus; only on a loopback or an ops address
//	/healthz       200 while the process serves
//	/readyz        200 while calls can be answered: engine and ledger answer,
//	               a policy is loaded, and the broker is not stopping; else 503.
//	               Operators are told which limits are pinned
//	/debug/pprof/  Go's profiles; only when switched on, only on loopback
package ops
