// Package broker gives tests the real budgetd: the binary, built once per test
// process, started on a free loopback port, and gone when the test is.
package broker
