package main

import (
	"math/big"

	"github.com/budgetd/budgetd/estimator/catalogue"
)

var genaiSource = catalogue.Source{
	Name:        "genai-prices",
	URL:         "https://github.com/pydantic/genai-prices/blob/main/prices/new_data/v2/data.json",
	Revision:    "47df840a5ab10bbcffb8e5ac01b9899032245d1b",
	Date:        "2026-08-21",
	Licence:     "MIT",
	LicenceFile: "LICENSE-genai-prices",
	Used:        "prices, tiers, model ids and match rules, context windows",
}

var litellmSource = catalogue.Source{
	Name:        "litellm",
	URL:         "https://github.com/BerriAI/litellm/blob/main/model_prices_and_context_window.json",
	Revision:    "main at 2026-07-24, by the mirror RoCry/llm-api-price 8442b939a6ead479f7995b5d74d8dce488bd0966",
	Date:        "2026-07-24",
	Licence:     "MIT",
	LicenceFile: "LICENSE-litellm",
	Used:        "service tiers, speeds, prices of images, seconds, pages and searches, modes, output maxima, missing context windows, and the price decisions that REPORT.md lists",
}

var devSource = catalogue.Source{
	Name:        "models.dev",
	URL:         "https://github.com/anomalyco/models.dev/tree/dev/providers",
	Revision:    "f3fc692299671838c7c65fd8126bf84d81a2e817",
	Date:        "2026-07-02",
	Licence:     "MIT",
	LicenceFile: "LICENSE-models.dev",
	Used:        "nothing is taken: REPORT.md lists where its prices differ",
}

// seller is a provider that the catalogue has.
type seller struct {
	id       string
	aliases  []string
	maker    bool
	fallback []string
	litellm  []string // how litellm prefixes its ids
	sells    []string // litellm's providers of which models billed by other units are taken
	dev      string   // how models.dev calls it
}

var sellers = []seller{
	{id: "openai", maker: true, litellm: []string{""}, sells: []string{"openai"}, dev: "openai"},
	{id: "anthropic", maker: true, litellm: []string{""}, dev: "anthropic"},
	{id: "google", maker: true, aliases: []string{"gemini", "vertex", "vertex_ai", "vertexai", "google_genai"},
		fallback: []string{"anthropic"}, litellm: []string{"gemini/", ""}, sells: []string{"gemini"}, dev: "google"},
	{id: "mistral", maker: true, aliases: []string{"mistralai"}, litellm: []string{"mistral/"}, sells: []string{"mistral"}, dev: "mistral"},
	{id: "deepseek", maker: true, litellm: []string{"deepseek/"}, dev: "deepseek"},
	{id: "x-ai", maker: true, aliases: []string{"xai"}, litellm: []string{"xai/"}, sells: []string{"xai"}, dev: "xai"},
	{id: "cohere", maker: true, aliases: []string{"cohere_chat"}, litellm: []string{"", "cohere/"}, sells: []string{"cohere"}, dev: "cohere"},
	{id: "moonshotai", maker: true, aliases: []string{"moonshot"}, litellm: []string{"moonshot/"}, dev: "moonshotai"},
	{id: "minimax", maker: true, litellm: []string{"minimax/"}, dev: "minimax"},
	{id: "zhipuai", maker: true, aliases: []string{"zhipu"}, litellm: []string{"zai/"}, dev: "zhipuai"},
	{id: "voyageai", maker: true, aliases: []string{"voyage"}, litellm: []string{"voyage/"}},
	{id: "azure", aliases: []string{"azure_openai", "azure-openai"}, fallback: []string{"openai"}, litellm: []string{"azure/", ""}, sells: []string{"azure"}, dev: "azure"},
	{id: "groq", litellm: []string{"groq/"}, sells: []string{"groq"}, dev: "groq"},
	{id: "cerebras", litellm: []string{"cerebras/"}, dev: "cerebras"},
	{id: "together", aliases: []string{"together_ai", "togetherai", "together-ai"}, litellm: []string{"together_ai/"}, dev: "togetherai"},
	{id: "fireworks", aliases: []string{"fireworks_ai"}, litellm: []string{"fireworks_ai/"}, dev: "fireworks-ai"},
	{id: "aws", aliases: []string{"bedrock", "amazon-bedrock", "aws-bedrock", "aws_bedrock"}, litellm: []string{"", "bedrock/"}, dev: "amazon-bedrock"},
	{id: "perplexity", litellm: []string{"perplexity/"}, dev: "perplexity"},
	{id: "openrouter", litellm: []string{"openrouter/"}, dev: "openrouter"},
	{id: "novita", litellm: []string{"novita/"}, dev: "novita-ai"},
	{id: "ovhcloud", litellm: []string{"ovhcloud/"}, dev: "ovhcloud"},
	{id: "avian"},
	{id: "doubleword"},
	{id: "modal"},
}

// decision is a choice that someone made after reading the report.
type decision struct {
	provider, model string
	// fromLitellm makes the model an entry of its own, at litellm's price;
	// otherwise the model is left out.
	fromLitellm bool
	reason      string
}

var decisions = []decision{
	{"openai", "gpt-4o-2024-05-13", true,
		"OpenAI prices the first snapshot of GPT-4o above the later ones; genai-prices gives all the same price"},
	{"openai", "gpt-oss-120b", false, "open weights that OpenAI does not serve; the hosts have prices of their own"},
	{"openai", "gpt-oss-20b", false, "open weights that OpenAI does not serve; the hosts have prices of their own"},
	{"openai", "gpt-oss-safeguard-20b", false, "open weights that OpenAI does not serve; the hosts have prices of their own"},
}

// discount is what a provider documents for all its models that chat.
type discount struct {
	provider, service string
	factor            *big.Rat
}

var discounts = []discount{
	// "50% of standard API prices", https://docs.claude.com/en/docs/build-with-claude/batch-processing;
	// the multipliers of the cache stack on it.
	{"anthropic", "batch", big.NewRat(1, 2)},
}
