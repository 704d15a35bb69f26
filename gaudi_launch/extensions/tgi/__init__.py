"""Text Generation Inference's Gaudi backend."""
