#!/bin/bash
# Runs small cases of the GPU's kernels under compute-sanitizer:
#   tools/sanitize_gpu.sh BUILD [LOGS [PROGRAM...]]
# BUILD is the build's folder, in which the test programs are; without PROGRAM, all that are listed
# below. On a machine with a GPU and compute-sanitizer; about a minute, since the programs run at the
# same time. Logs of what failed are printed.
set -u
build=$(cd "$1" && pwd)
logs=${2:-$(mktemp -d)}
chosen=" ${*:3} "
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [ ! -x "$sanitizer" ]; then
  echo "sanitize_gpu: expected compute-sanitizer on the PATH; it comes with the CUDA toolkit" >&2
  exit 2
fi

# Cases that are small: a kernel under a tool is ten to a hundred times slower.
cases="
memcheck cuda_ops_gpu_test FirstRowsGpuTest.*:RopeKvGpuTest.QuantizedRows*:ActivationGpuTest.Gated*:NormGpuTest.ARow*
memcheck cuda_fused_gpu_test FusedGpuTest.NormsAdd*:FusedGpuTest.NothingIsDone*
memcheck cuda_sampling_gpu_test CudaSamplerTest.ChoosesFromRows*:CudaSamplerTest.Replays*:CudaSamplerTest.LeavesRows*
memcheck cuda_moe_gpu_test MoeGpuTest.*
memcheck cuda_mixed_gemm_gpu_test MixedGemm.RunsInGraphs:MixedGemm.IsRightForFewRows
memcheck cuda_mma_gemm_gpu_test MmaGemm.ARow*:MmaGemm.RunsInGraphs:MmaW4ax.RowsThat*
memcheck cuda_attention_gpu_test CudaAttention.AGraph*:CudaAttention.NotANumber*
memcheck cuda_gemm_gpu_test FewRowsGpuTest.*:QuantizeRowsGpuTest.TakesMany*
memcheck cuda_models_gpu_test GpuGraphs.ServeOne*:Families/GpuFamily.*/llama*
racecheck cuda_ops_gpu_test NormGpuTest.ARow*:RopeKvGpuTest.QuantizedRows*
racecheck cuda_fused_gpu_test FusedGpuTest.NormsAdd*
racecheck cuda_sampling_gpu_test CudaSamplerTest.Replays*:CudaSamplerTest.LeavesRows*
racecheck cuda_mma_gemm_gpu_test MmaGemm.ARow*:MmaW4ax.RowsThat*
racecheck cuda_moe_gpu_test MoeGpuTest.TheLower*:MoeGpuTest.AllRows*
synccheck cuda_ops_gpu_test NormGpuTest.ARow*
synccheck cuda_sampling_gpu_test CudaSamplerTest.Replays*
synccheck cuda_attention_gpu_test CudaAttention.NotANumber*
"
mkdir -p "$logs"
pids=()
names=()
while read -r tool program filter; do
  [ -n "$tool" ] || continue
  [ "$chosen" = "  " ] || [[ "$chosen" == *" $program "* ]] || continue
  path=$(find "$build" -name "$program" -type f | head -n 1)
  if [ -z "$path" ]; then
    echo "sanitize_gpu: expected $program in $build, got nothing. Build it first." >&2
    exit 2
  fi
  name=$tool-$program
  # 9: what the sanitizer found; any other status is the program's own.
  (
    start=$SECONDS
    timeout 300 "$sanitizer" --tool "$tool" --error-exitcode 9 \
      --print-limit 20 "$path" --gtest_brief=1 --gtest_filter="$filter" \
      > "$logs/$name.log" 2>&1
    status=$?
    echo "$status" > "$logs/$name.status"
    echo "$name: status $status, $((SECONDS - start)) s"
    exit $status
  ) &
  pids+=($!)
  names+=("$name")
done <<< "$cases"

if [ ${#pids[@]} -eq 0 ]; then
  echo "sanitize_gpu: expected programs of the list, got$chosen" >&2
  exit 2
fi
num_failed=0
for i in "${!pids[@]}"; do
  if ! wait "${pids[$i]}"; then
    num_failed=$((num_failed + 1))
    echo "== ${names[$i]}"
    tail -n 40 "$logs/${names[$i]}.log"
  elif ! grep -q "PASSED  \] [1-9]" "$logs/${names[$i]}.log"; then
    num_failed=$((num_failed + 1))
    echo "== ${names[$i]}: no test ran"
  fi
done
echo "sanitize_gpu: $((${#pids[@]} - num_failed)) of ${#pids[@]} runs without findings; logs in $logs"
[ "$num_failed" -eq 0 ]
