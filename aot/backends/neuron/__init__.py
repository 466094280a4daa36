"""torch-xla lowering to HLO and neuronx-cc: the backend for AWS Trainium."""
