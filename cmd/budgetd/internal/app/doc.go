// Package app puts budgetd together and takes it apart: it opens what the
// configuration names, starts the servers, and stops everything in the order
// that loses nothing which was acknowledged.
//
// A command that serves needs one line:
//
//	err := app.Run(ctx, c, os.Stderr)  // serves until ctx ends or SIGINT or SIGTERM comes
//	os.Exit(app.ExitCode(err))         // 0, 1, or config.ExitCode
//
// A command that only reads or changes the store (migrate, apply, account,
// key) opens just that:
//
//	stores, err := app.OpenStores(ctx, c, nil) // migrated; *Stores{DB, Dialect, Policies, Keys}
//	defer stores.Close()
//
// A test, or another program that embeds a broker, starts one in its own
// process:
//
//	a, err := app.Start(ctx, c, app.Options{})
//	defer a.Close(ctx)
//	a.Addr() // "127.0.0.1:43210"; a.URL() is "http://127.0.0.1:43210"
//
// Errors of all three are printed as they are: each says what is wrong and what
// to do.
package app
