"""Quantizes a model and says what that costs: python_quantize.py MODEL TEXT"""
import sys

import halley


def main(model: str, text: str) -> None:
    """Writes the folder w4a16 and compares it with the model."""
    result = halley.quantize(model, method="awq", out="w4a16", calibrate=text, num_samples=8,
                             sample_length=256)
    worst = max(result.layers, key=lambda layer: layer.relative_error)
    print(f"{result.recipe}; {result.written_bytes / result.source_bytes:.0%} of the bytes; "
          f"the worst layer is {worst.name}")
    cost = halley.eval.kl_divergence("w4a16", model, text, window=256, num_windows=8)
    print(f"perplexity {cost.reference_perplexity:.2f} -> {cost.perplexity:.2f}, "
          f"KL divergence {cost.kl_divergence.value:.4f} nats a token")


if __name__ == "__main__":
    main(*sys.argv[1:])
