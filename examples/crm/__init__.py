"""A small CRM over HTTP that loses answers, and a workflow that writes to it exactly once."""
