package rpc

import (
	"context"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

var roles = map[auth.Role]budgetv1.KeyRole{
	auth.RoleCaller: budgetv1.KeyRole_KEY_ROLE_CALLER,
	auth.RoleAdmin:  budgetv1.KeyRole_KEY_ROLE_ADMIN,
}

// apiKeyIDBytes is how long the id of a key is.
const apiKeyIDBytes = 16

func apiKeyOut(key auth.Key) *budgetv1.ApiKey {
	return &budgetv1.ApiKey{
		Id: key.ID, Name: key.Name, Role: roles[key.Role], Accounts: key.Accounts, Last4: key.Last4,
		CreatedAt: timeOut(key.CreatedAt), ExpiresAt: timeOut(key.ExpiresAt), RevokedAt: timeOut(key.RevokedAt),
		CreatedBy: key.CreatedBy, RevokedBy: key.RevokedBy,
	}
}

// CreateKey implements budgetv1connect.AdminServiceHandler.
func (a *admin) CreateKey(ctx context.Context, request *connect.Request[budgetv1.CreateKeyRequest]) (*connect.Response[budgetv1.CreateKeyResponse], error) {
	m := request.Msg
	n := auth.NewKey{Name: m.Name, Role: auth.RoleCaller, Accounts: m.Accounts, By: a.by(ctx)}
	switch m.Role {
	case budgetv1.KeyRole_KEY_ROLE_UNSPECIFIED, budgetv1.KeyRole_KEY_ROLE_CALLER:
	case budgetv1.KeyRole_KEY_ROLE_ADMIN:
		n.Role = auth.RoleAdmin
	default:
		return nil, invalid(&budgetv1.InvalidField{Field: "role", Problem: "is not a role", Bound: "KEY_ROLE_CALLER or KEY_ROLE_ADMIN"})
	}
	var err error
	if n.ExpiresAt, err = instantIn("expiresAt", m.ExpiresAt); err != nil {
		return nil, err
	}
	key, secret, err := a.parts.Keys.Create(ctx, n)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	a.changed(ctx, "an API key was created", "created", key.ID, "name", key.Name, "role", string(key.Role))
	answer := &budgetv1.CreateKeyResponse{Key: apiKeyOut(key), Secret: secret.Reveal()}
	a.follow(ctx)
	accounts := a.broker.Policies.Current().Accounts
	for _, name := range key.Accounts {
		if _, known := accounts[name]; !known && name != auth.EveryAccount {
			answer.UnknownAccounts = append(answer.UnknownAccounts, name)
		}
	}
	return connect.NewResponse(answer), nil
}

// ListKeys implements budgetv1connect.AdminServiceHandler.
func (a *admin) ListKeys(ctx context.Context, request *connect.Request[budgetv1.ListKeysRequest]) (*connect.Response[budgetv1.ListKeysResponse], error) {
	size, err := pageSize(request.Msg.PageSize, defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	if token := request.Msg.PageToken; token != "" && len(token) != apiKeyIDBytes {
		return nil, badPageToken()
	}
	keys, err := a.parts.Keys.List(ctx, request.Msg.PageToken, size)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	answer := &budgetv1.ListKeysResponse{}
	for _, key := range keys {
		answer.Keys = append(answer.Keys, apiKeyOut(key))
	}
	if len(keys) == size {
		answer.NextPageToken = keys[size-1].ID
	}
	return connect.NewResponse(answer), nil
}

// RevokeKey implements budgetv1connect.AdminServiceHandler.
func (a *admin) RevokeKey(ctx context.Context, request *connect.Request[budgetv1.RevokeKeyRequest]) (*connect.Response[budgetv1.RevokeKeyResponse], error) {
	id := request.Msg.Id
	if err := required("id", id, apiKeyIDBytes); err != nil {
		return nil, err
	}
	key, err := a.parts.Keys.Revoke(ctx, id, a.by(ctx))
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	a.changed(ctx, "an API key was revoked", "revoked", key.ID, "name", key.Name)
	return connect.NewResponse(&budgetv1.RevokeKeyResponse{Key: apiKeyOut(key)}), nil
}

// RotateSigningKey implements budgetv1connect.AdminServiceHandler.
func (a *admin) RotateSigningKey(ctx context.Context, _ *connect.Request[budgetv1.RotateSigningKeyRequest]) (*connect.Response[budgetv1.RotateSigningKeyResponse], error) {
	id, err := a.parts.Signing.Rotate(ctx)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	a.changed(ctx, "the signing keys were rotated", "signing_key", id)
	return connect.NewResponse(&budgetv1.RotateSigningKeyResponse{KeyId: uint32(id)}), nil
}
