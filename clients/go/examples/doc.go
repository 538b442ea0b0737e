// Package examples has programs that keep a budget around the calls of an SDK.
// Each runs against any broker and provider, as its first comment says; the test
// runs them all. They are a module of their own, so that the SDKs are no
// dependencies of the client.
package examples
