#!/bin/bash
# Runs small cases of the GPU's kernels under compute-sanitizer:
#   tools/sanitize_gpu.sh BUILD [LOGS [WHAT...]]
# BUILD is the build's folder, in which the test programs are. WHAT is a program, a tool, or a part
# of the list as I/N, of which the parts 1/N to N/N are the whole; all of them count together, and
# without any the whole list runs. On a machine with a GPU and compute-sanitizer; as many at a time
# as there are cores, a few minutes with four. Logs of what failed are printed.
set -u
build=$(cd "$1" && pwd)
logs=${2:-$(mktemp -d)}
programs=" " tools=" " part=0 num_parts=1
for what in "${@:3}"; do
  case $what in
    */*) part=$((${what%/*} - 1)) num_parts=${what#*/} ;;
    *check) tools+="$what " ;;
    *) programs+="$what " ;;
  esac
done
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [ ! -x "$sanitizer" ]; then
  echo "sanitize_gpu: expected compute-sanitizer on the PATH; it comes with the CUDA toolkit" >&2
  exit 2
fi

# Cases that are small: a kernel under a tool is ten to a hundred times slower. Lines of one program
# are one run each, so that none takes much longer than half a minute.
#
# memcheck   every program: addresses in device and shared memory, launches that fail.
# initcheck  what reads what an earlier launch wrote: attention's tables, pieces and counts.
# synccheck  kernels with barriers of warps, blocks or clusters.
# racecheck  kernels that share memory of a block, but for those of `rings`; of a model the modules'.
cases="
memcheck cuda_runtime_gpu_test CudaRuntimeTest.Staged*:CudaRuntimeTest.Graph*
memcheck cuda_ops_gpu_test FirstRowsGpuTest.*:RopeKvGpuTest.QuantizedRows*
memcheck cuda_ops_gpu_test ActivationGpuTest.Gated*:NormGpuTest.ARow*
memcheck cuda_fused_gpu_test FusedGpuTest.AddNorms*:FusedGpuTest.NothingIsDone*
memcheck cuda_rank_sum_gpu_test Ranks/RankSum.KeepsInfinities*Gpu2:Ranks/RankSum.ARank*Gpu2:Ranks/SummedNorm.Chains*Gpu2:PeerExchange.*
memcheck cuda_sampling_gpu_test CudaSamplerTest.ChoosesFromRows*:CudaSamplerTest.Replays*:CudaSamplerTest.LeavesRows*
memcheck cuda_moe_gpu_test MoeGpuTest.*
memcheck cuda_grouped_gemm_gpu_test QuantizedGroupedGpuTest.ARow*
memcheck cuda_grouped_gemm_gpu_test WgmmaGroupedGpuTest.OneRow*:WgmmaGroupedGpuTest.ARow*
memcheck cuda_experts_gpu_test ExpertsGpuTest.Codes*:ExpertsGpuTest.AGraph*
memcheck cuda_attention_gpu_test CudaAttention.AGraph*:CudaAttention.NotANumber*:CudaAttention.ScalesOf*
memcheck cuda_attention_gpu_test CudaAttention.ManyWorkItems*
memcheck cuda_attention_gpu_test CudaAttention.DecodesOfAll*
memcheck cuda_attention_gpu_test Types/WarpAttention.*int4:Types/WarpAttention.*/f16
memcheck cuda_attention_gpu_test CudaAttention.ChunksBehind*
memcheck cuda_gemm_gpu_test QuantizeRowsGpuTest.TakesMany*:QuantizeRowsGpuTest.LaneOrder*:GemmGpuTest.NanStays*
memcheck cuda_gemm_gpu_test StreamedGemmGpuTest.TakesOdd*
memcheck cuda_gemm_gpu_test NormedGemmGpuTest.RoundsRows*
memcheck cuda_mixed_gemm_gpu_test MixedGemm.RunsInGraphs:MixedGemm.IsRightForFewRows:MixedGemm.FewRows*
memcheck cuda_row_gemm_gpu_test RowGemm.*:RowW4ax.*
memcheck cuda_nested_gemm_gpu_test NestedGemm.*
memcheck cuda_w4ax_gemm_gpu_test W4axGemm.SumsOf*:W4axGemm.RowsThat*:W4axGemm.RunsInGraphs*:W4axGemm.FewTokens*
memcheck cuda_ablation_gpu_test AblationGpu.*
memcheck cuda_mma_gemm_gpu_test MmaGemm.ARow*:MmaGemm.RunsInGraphs:MmaW4ax.RowsThat*
memcheck cuda_gemv_gpu_test GemvGpuTest.GivesThe*:GemvGpuTest.WaitsFor*
memcheck cuda_library_gpu_test *HalleyKernels*
memcheck cuda_weights_gpu_test CudaLinearGpuTest.Keeps*:CudaLinearGpuTest.Numbers*:LinearInputGpuTest.*
memcheck cuda_weights_gpu_test TileLinear.*
memcheck cuda_checkpoints_gpu_test CudaCheckpoints.*
memcheck cuda_self_check_gpu_test Types/CudaSelfCheckTest.NoticesWrongPacking/*
memcheck cuda_models_gpu_test GpuGraphs.ServeOne*:Families/GpuFamily.*/llama*
initcheck cuda_attention_gpu_test CudaAttention.AGraph*
initcheck cuda_attention_gpu_test Types/WarpAttention.*int4
synccheck cuda_ops_gpu_test NormGpuTest.ARow*
synccheck cuda_fused_gpu_test FusedGpuTest.AddNorms*
synccheck cuda_rank_sum_gpu_test Ranks/RankSum.NegativeZeros*Gpu2:Ranks/SummedNorm.Chains*Gpu2
synccheck cuda_sampling_gpu_test CudaSamplerTest.Replays*
synccheck cuda_moe_gpu_test MoeGpuTest.AllRows*
synccheck cuda_grouped_gemm_gpu_test WgmmaGroupedGpuTest.OneRow*
synccheck cuda_attention_gpu_test CudaAttention.NotANumber*:CudaAttention.ScalesOf*
synccheck cuda_gemm_gpu_test StreamedGemmGpuTest.TakesOdd*
synccheck cuda_nested_gemm_gpu_test NestedGemm.RunsInGraphs*
synccheck cuda_w4ax_gemm_gpu_test W4axGemm.RunsInGraphs*
synccheck cuda_mixed_gemm_gpu_test MixedGemm.RunsInGraphs:MixedGemm.FewRowsHave*
synccheck cuda_row_gemm_gpu_test RowGemm.WaitsFor*
synccheck cuda_mma_gemm_gpu_test MmaGemm.RunsInGraphs:MmaW4ax.SumsOf*
racecheck cuda_ops_gpu_test NormGpuTest.ARow*:RopeKvGpuTest.QuantizedRows*
racecheck cuda_fused_gpu_test FusedGpuTest.AddNorms*
racecheck cuda_rank_sum_gpu_test Ranks/RankSum.NegativeZeros*Gpu2:Ranks/SummedNorm.Chains*Gpu2
racecheck cuda_sampling_gpu_test CudaSamplerTest.LeavesRows*
racecheck cuda_moe_gpu_test MoeGpuTest.TheLower*:MoeGpuTest.AllRows*
racecheck cuda_grouped_gemm_gpu_test QuantizedGroupedGpuTest.ARow*
racecheck cuda_attention_gpu_test CudaAttention.AGraph*
racecheck cuda_attention_gpu_test CudaAttention.NotANumber*:CudaAttention.ScalesOf*
racecheck cuda_attention_gpu_test CudaAttention.ManyWorkItems*
racecheck cuda_attention_gpu_test Types/WarpAttention.*int4:Types/WarpAttention.*/f16
racecheck cuda_gemm_gpu_test StreamedGemmGpuTest.TakesOdd*
racecheck cuda_mma_gemm_gpu_test MmaGemm.ARow*:MmaW4ax.RowsThat*
racecheck cuda_nested_gemm_gpu_test NestedGemm.JoinsAll*
racecheck cuda_weights_gpu_test CudaLinearGpuTest.Keeps*:TileLinear.Blocks*
racecheck cuda_experts_gpu_test ExpertsGpuTest.AGraph*
"

# Kernels that racecheck leaves out, by a part of their names. It does not follow a lane that arrives
# at an mbarrier for its warp behind a barrier of that warp: where lanes of one warp read (or write)
# what a bulk copy or another warp writes (or reads) next, and one lane says so, it reports races
# that are none. With an arrival of each lane the same rings have no findings, and are slower. It
# says the same of cuBLASLt's kernels, and fails in GEMMs behind them where they are left out: its
# cases are without them.
rings="prefill_kernel nested_kernel w4ax_kernel mixed_kernel narrow_kernel wgmma_grouped_kernel"
exclusions=()
for ring in $rings; do exclusions+=(--kernel-name-exclude "kns=$ring"); done

# Programs without cases: they need several GPUs, NCCL or PyTorch, or take the time of kernels; the
# kernels that they run have cases above.
without=" cuda_tune_gpu_test parallel_nccl_gpu_test python_torch_gpu_test ranked_gpu_test "
# Any other program without a case is one that somebody forgot.
while read -r program; do
  if [[ "$without" != *" $program "* ]] && [[ "$cases" != *" $program "* ]]; then
    echo "sanitize_gpu: expected a case of $program, got none. Add one to the list." >&2
    exit 2
  fi
done < <(find "$build" -name "*_gpu_test" -type f -printf '%f\n')

mkdir -p "$logs"
names=()
index=0
while read -r tool program filter; do
  [ -n "$tool" ] || continue
  [ "$programs" = " " ] || [[ "$programs" == *" $program "* ]] || continue
  [ "$tools" = " " ] || [[ "$tools" == *" $tool "* ]] || continue
  index=$((index + 1))
  [ $((index % num_parts)) -eq "$part" ] || continue
  path=$(find "$build" -name "$program" -type f | head -n 1)
  if [ -z "$path" ]; then
    echo "sanitize_gpu: expected $program in $build, got nothing. Build it first." >&2
    exit 2
  fi
  name=$tool-$program-$index
  options=(--tool "$tool" --error-exitcode 9 --print-limit 20)
  [ "$tool" != racecheck ] || options+=("${exclusions[@]}")
  [ "$tool" != synccheck ] || options+=(--num-cuda-barriers 16384)
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
  # 9: what the sanitizer found; any other status is the program's own.
  (
    start=$SECONDS
    timeout 300 "$sanitizer" "${options[@]}" "$path" --gtest_brief=1 --gtest_filter="$filter" \
      > "$logs/$name.log" 2>&1
    status=$?
    echo "$status" > "$logs/$name.status"
    echo "$name: status $status, $((SECONDS - start)) s"
  ) &
  names+=("$name")
done <<< "$cases"

if [ ${#names[@]} -eq 0 ]; then
  echo "sanitize_gpu: expected programs or tools of the list, or a part as 1/3, got ${*:3}" >&2
  exit 2
fi
wait
num_failed=0
for name in "${names[@]}"; do
  if [ "$(cat "$logs/$name.status")" != 0 ]; then
    num_failed=$((num_failed + 1))
    echo "== $name"
    tail -n 40 "$logs/$name.log"
  elif ! grep -q "PASSED  \] [1-9]" "$logs/$name.log"; then
    num_failed=$((num_failed + 1))
    echo "== $name: no test ran"
  fi
done
echo "sanitize_gpu: $((${#names[@]} - num_failed)) of ${#names[@]} runs without findings; logs in $logs"
[ "$num_failed" -eq 0 ]
