// Package trace reads recorded traffic: the calls that a service made.
//
// [Reader] reads the traces of LLM requests that Azure publishes, strictly, for
// a replay against a running broker. [Calls] is what everything else is read
// through: [CSV] files with a header, the same traces among them, and
// [JSONLines], in bounded memory, as one and in order ([Files], [Ordered]).
package trace
