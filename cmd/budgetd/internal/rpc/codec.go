package rpc

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// maxDepth bounds how deep JSON is nested: tool schemas in a provider's request
// are far below.
const maxDepth = 100

var strictJSON = protojson.UnmarshalOptions{RecursionLimit: maxDepth}

// jsonCodec reads and writes messages as JSON. Unlike Connect's own it refuses
// fields that it does not know, says which field can't be read, and writes
// without white space that changes from build to build.
type jsonCodec struct {
	name string
	mark *faultMark
}

func (c jsonCodec) Name() string   { return c.name }
func (c jsonCodec) IsBinary() bool { return false }

func (c jsonCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	compact := bytes.NewBuffer(make([]byte, 0, len(text)))
	if err := json.Compact(compact, text); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
}

// MarshalStable is Marshal: the order of fields and map keys is fixed.
func (c jsonCodec) MarshalStable(message any) ([]byte, error) { return c.Marshal(message) }

// Unmarshal never fails for what a caller sent: Connect would answer it with
// text only. It leaves the fault in the message, where the interceptor of the
// mark finds it and answers with a detail that names the field.
func (c jsonCodec) Unmarshal(text []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", message)
	}
	if err := strictJSON.Unmarshal(text, m); err != nil {
		proto.Reset(m)
		return c.mark.put(m, diagnose(text, m.ProtoReflect().Descriptor(), err))
	}
	return nil
}

// faultMark carries what is wrong with a request from the decoder to the
// interceptor, inside the message itself: as an unknown field with the highest
// number there is. The secret that it begins with keeps callers from making
// one of their own.
type faultMark struct {
	secret []byte
}

const faultNumber = protowire.MaxValidNumber

func newFaultMark() *faultMark {
	secret := make([]byte, 16)
	rand.Read(secret) // never fails, see crypto/rand
	return &faultMark{secret}
}

func (f *faultMark) put(m proto.Message, fault *budgetv1.InvalidField) error {
	encoded, err := proto.Marshal(fault)
	if err != nil {
		return err
	}
	b := protowire.AppendTag(nil, faultNumber, protowire.BytesType)
	b = protowire.AppendBytes(b, append(bytes.Clone(f.secret), encoded...))
	m.ProtoReflect().SetUnknown(b)
	return nil
}

// take returns the fault in a message, or nil.
func (f *faultMark) take(m proto.Message) *budgetv1.InvalidField {
	unknown := m.ProtoReflect().GetUnknown()
	if len(unknown) == 0 {
		return nil
	}
	number, kind, n := protowire.ConsumeTag(unknown)
	if n < 0 || number != faultNumber || kind != protowire.BytesType {
		return nil
	}
	value, m2 := protowire.ConsumeBytes(unknown[n:])
	if m2 < 0 {
		return nil
	}
	encoded, ours := bytes.CutPrefix(value, f.secret)
	fault := &budgetv1.InvalidField{}
	if !ours || proto.Unmarshal(encoded, fault) != nil {
		return nil
	}
	return fault
}

// WrapUnary answers requests that could not be read.
func (f *faultMark) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if m, ok := request.Any().(proto.Message); ok {
			if fault := f.take(m); fault != nil {
				return nil, invalid(fault)
			}
		}
		return next(ctx, request)
	}
}

func (f *faultMark) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler answers a request of a stream that could not be read.
func (f *faultMark) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(ctx, checkedConn{conn, f})
	}
}

// checkedConn finds the fault in a request when it is received.
type checkedConn struct {
	connect.StreamingHandlerConn
	mark *faultMark
}

func (c checkedConn) Receive(message any) error {
	if err := c.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	if m, ok := message.(proto.Message); ok {
		if fault := c.mark.take(m); fault != nil {
			return invalid(fault)
		}
	}
	return nil
}
