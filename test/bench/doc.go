// Package bench measures the ledger and a durable Refund against what they are
// built on, on real servers, each pair in turns in one run: their ratio is what
// counts, as the disk and the machine drift. It measures the counting of tokens
// against tiktoken-go in the same way. `make bench PKG=./test/bench`.
package bench
