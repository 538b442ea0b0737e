// Package config is what an operator may set of budgetd: one table of settings,
// each with one name, its unit, default and bound, in three spellings. The
// setting shutdown_grace is
//
//	shutdown_grace: 10s          in the file
//	BUDGETD_SHUTDOWN_GRACE=10s   in the environment
//	--shutdown-grace 10s         as a flag
//
// A flag wins over the environment, the environment over the file, the file
// over the default. Anything unknown or out of bounds is refused by name.
//
// A command uses it in two lines:
//
//	config.AddFlags(command.Flags())                       // when it is made
//	c, err := config.Load(command.Flags(), os.LookupEnv)   // when it runs
//
// Load's error joins one [*Error] for each fault and is printed as it is; the
// process then ends with [ExitCode]. docs/configuration.md is generated from
// the table.
package config
