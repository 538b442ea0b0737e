// Package e2e tests budgetd as its users meet it: the real binary, on real
// Redis and PostgreSQL, over the network, with processes killed and servers
// taken away.
package e2e
