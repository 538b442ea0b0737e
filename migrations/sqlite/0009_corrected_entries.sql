-- Finds what a correction of prices posted. Few entries have one, so the index
-- is small.

-- +goose Up

CREATE INDEX entries_by_correction ON entries (correction) WHERE correction IS NOT NULL;
