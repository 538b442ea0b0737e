-- PostgreSQL detaches the partitions of months that are not kept any more.
-- SQLite has no partitions, and its ledger keeps every month: nothing changes.

-- +goose Up
SELECT 1;
