// Package traces makes traces of model calls, where the published ones are not at
// hand: they are too large, and not ours, to keep in the repository.
//
// [Generate] writes a trace of LLM requests in the form of the Azure LLM inference
// traces of 2023 (https://github.com/Azure/AzurePublicDataset, CC BY 4.0; Patel
// et al., "Splitwise: Efficient Generative LLM Inference Using Phase Splitting",
// ISCA 2024). The time between requests, the tokens that a request reads and
// those that it writes are drawn independently of each other from the quantiles
// of the published traces, with straight lines between them. What a generated
// trace does not have is what no single column shows: that long prompts and
// bursts come together.
package traces
