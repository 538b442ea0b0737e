-- Finds what a correction of prices posted. Few entries have one, so the index
-- is small, but every month is read once to make it.

-- +goose Up

CREATE INDEX entries_by_correction ON entries (correction) WHERE correction IS NOT NULL;
