// Package trace reads recorded traffic: the calls that a service made, in the
// order of time. [Reader] reads the traces of LLM requests that Azure publishes.
package trace
