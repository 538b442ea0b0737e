-- Who made and who revoked an API key: an admin key's name, user@host of the
-- command line on the database, or budgetd. NULL: it is older than this, or was
-- not revoked.

-- +goose Up

ALTER TABLE api_keys ADD COLUMN created_by TEXT;
ALTER TABLE api_keys ADD COLUMN revoked_by TEXT;
