// Package transport puts a budget around the calls that an SDK makes to a
// provider of models: a [Transport] goes where the SDK takes an HTTP client.
//
//	client, err := budget.New("http://127.0.0.1:8080", key)
//	...
//	budgeted := transport.New(client, transport.WithAccount("acme"))
//	sdk := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: budgeted}))
//
// Of a call that it recognises ([Endpoints]) it reads the request, reserves what
// the broker estimates for it, forwards it, and refunds what the answer says that
// it used, plain or streamed. Each try of an SDK is a call of its own. A refusal
// is an answer in the provider's own error shape, with Retry-After, so that the
// SDK's own retrying works; a quota that is spent is not retried.
//
// Answers pass through as they come. The exceptions are two: an OpenAI chat
// stream is asked for its usage where the caller did not ask, and the chunk that
// this adds is taken out again; and of a call that the caller allows a shorter
// answer for ([WithGrantedOutput]) the bound of the output is set.
//
// What is charged:
//
//   - the provider told the usage: that;
//   - a stream was cut before: the input that was told, else the one that was
//     expected, and the text that was seen;
//   - the provider refused, was not reached, or did not get the request whole: nothing;
//   - a plain answer was cut, told no usage, or never came: nobody knows, so
//     everything that was held.
package transport
