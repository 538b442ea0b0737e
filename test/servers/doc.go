// Package servers gives tests real servers: Redis, a three-primary Redis
// Cluster and PostgreSQL, started from the installed binaries on free loopback
// ports, in temporary directories, and gone when the test process is.
//
// Shared servers ([SharedRedis], [SharedRedisCluster], [SharedPostgres]) start
// once per test process, on first use. A test keeps to itself in them with a
// key prefix of its own ([Prefix]) or a database of its own ([FreshDatabase],
// [FreshDatabaseFrom]). A test that kills, freezes or restarts a server takes
// one of its own ([NewRedis], [NewRedisCluster], [NewPostgres]), stopped when
// that test ends.
//
// # Servers from outside
//
// The shared servers are not started where the environment names others:
//
//   - BUDGETD_TEST_REDIS: a URL, redis://user:password@host:6379/0
//   - BUDGETD_TEST_REDIS_CLUSTER: addresses of nodes, host:port,host:port
//   - BUDGETD_TEST_POSTGRES: a DSN of a role that may create databases
//
// A server of a test's own is always started, as no test may kill a server
// that it did not start.
//
// Without a binary and without the variable the test fails and says what to
// install. It never skips: a test that did not run proves nothing.
//
// # How servers stop
//
// A server of a test's own stops in the test's Cleanup. The shared ones stop
// at the end of [Main], if a package has it as its TestMain. And whatever
// happens to the test process, SIGKILL included, its servers go with it: on
// Linux by the parent-death signal, everywhere by a small watching process
// that also removes the temporary directory.
//
// PostgreSQL refuses to run as root. When the tests do, it runs as the user
// postgres or, without one, as nobody.
package servers
