"""Audits: what attacks on a run or on an aggregator can show of its privacy loss."""
