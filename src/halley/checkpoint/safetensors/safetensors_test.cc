#include "halley/checkpoint/safetensors/safetensors.h"
