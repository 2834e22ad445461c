"""Generated from `proto/heronpy/proto/*.proto` by `make proto`; never edited by hand."""
