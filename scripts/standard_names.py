"""Which header of the standard library has a name: the names that our headers use, with the header that each must include itself."""

import re

_HEADERS = {
    "algorithm": """sort stable_sort find find_if find_if_not min_element max_element any_of all_of none_of count_if copy_if clamp reverse
        lower_bound upper_bound equal_range remove_if fill fill_n replace transform for_each""",
    "array": "array to_array",
    "atomic": "atomic atomic_ref atomic_flag atomic_thread_fence memory_order_relaxed memory_order_acquire memory_order_release "
    "memory_order_acq_rel memory_order_seq_cst",
    "bit": "bit_cast popcount countl_zero countr_zero has_single_bit bit_ceil bit_width endian",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "condition_variable": "condition_variable condition_variable_any",
    "cstdint": "uint8_t uint16_t uint32_t uint64_t int8_t int16_t int32_t int64_t uintptr_t intptr_t",
    "deque": "deque",
    "exception": "exception exception_ptr current_exception rethrow_exception",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream fstream",
    "functional": "function equal_to less greater bind reference_wrapper",
    "future": "future promise async",
    "initializer_list": "initializer_list",
    "iterator": "back_inserter make_move_iterator",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared enable_shared_from_this default_delete",
    "mutex": "mutex lock_guard unique_lock scoped_lock once_flag call_once recursive_mutex",
    "numeric": "iota accumulate",
    "optional": "optional nullopt nullopt_t make_optional",
    "queue": "queue priority_queue",
    "random": "mt19937 mt19937_64 random_device uniform_int_distribution uniform_real_distribution",
    "regex": "regex smatch regex_search regex_match",
    "set": "set multiset",
    "shared_mutex": "shared_mutex shared_lock",
    "span": "span as_bytes as_writable_bytes",
    "sstream": "ostringstream istringstream stringstream",
    "string": "string to_string getline stoi stol stoul stoll stoull stod",
    "string_view": "string_view",
    "system_error": "error_code system_error generic_category system_category errc",
    "thread": "thread jthread this_thread",
    "tuple": "tuple tie make_tuple apply",
    "type_traits": """is_same_v decay_t enable_if_t is_void_v conditional_t remove_cvref_t is_trivially_copyable_v invoke_result_t
        is_integral_v is_unsigned_v is_signed_v is_enum_v underlying_type_t make_unsigned_t make_signed_t""",
    "unordered_map": "unordered_map unordered_multimap",
    "unordered_set": "unordered_set",
    "variant": "variant visit monostate get_if holds_alternative in_place_type in_place_type_t",
    "vector": "vector",
}  # fmt: skip
_HEADER_OF = {name: header for header, names in _HEADERS.items() for name in names.split()}
_USED = re.compile(r"\bstd::(\w+)")
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


def not_included(text, included):
    """["std::map needs <map>"] of the names in this text whose header is none of these."""
    used = set(_USED.findall(_NO_CODE.sub("", text)))
    return [f"std::{name} needs <{_HEADER_OF[name]}>" for name in sorted(used)
            if name in _HEADER_OF and _HEADER_OF[name] not in included]  # fmt: skip
