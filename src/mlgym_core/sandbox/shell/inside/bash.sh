# Functions are saved with every action, so there are few.
builtin readonly __m_D=@STATE@
__m_s() { builtin printf 'cd -- %q || __m_g=gone\n' "$PWD"; builtin umask -p; builtin export -p; builtin declare -f; builtin printf '__m_k=%s\n' "$1"; }
# The tools' state, for the marker: nothing that could be taken for its end, nothing long.
__m_i() { IFS= builtin read -r -n 2049 __m_t <"$__m_D/tools"; [[ $__m_t == *[$'\036\037']* || ${#__m_t} -gt 2048 ]] && __m_t=; __m_t=$'\037'$__m_t; }
# It is read when it may have changed since the action before the last: that misses no background job's change.
# Where "builtin" is not what it should be, the expansion of an unset variable ends the shell: nothing else is sure to.
__m() { builtin local __m_r=$? __m_w __m_p __m_t; [[ ${__m_r?} ]]; builtin set +exuvfC; IFS=$' \t\n'; builtin eval && ! builtin declare -F eval >&6 || { __m_w=:eval; builtin unset -f eval; }; [[ $PWD == *[$'\036\037']* || ${#PWD} -gt 1024 ]] || __m_p=$PWD; [[ ! -f $__m_D/tools || $__m_D/$2 -nt $__m_D/tools ]] || __m_i; builtin printf '\036%s:\036' "$1" >&9; builtin printf '\036%s:%d:%d%s\037%s%s\036' "$1" "$__m_r" $$ "$__m_w" "$__m_p" "$__m_t" >&8; [[ -f $__m_D/$2 || ! -e $__m_D/$2 ]] || builtin command -p rm -rf "$__m_D/$2"; __m_s "$2" >|"$__m_D/$2"; [[ ! $__m_w ]] || builtin exit; builtin return "$__m_r"; }
builtin readonly -f __m_s __m_i __m
builtin trap 'builtin printf -v __m_r x; [[ ${__m_r?the shell cannot work without its own "builtin"} ]]; builtin set +exuvfC; [[ -f $__m_D/x || ! -e $__m_D/x ]] || builtin command -p rm -rf "$__m_D/x"; __m_s x >|"$__m_D/x"' EXIT
{
builtin command -p mkdir -p "$__m_D"
builtin command -p rm -rf "$__m_D/x" "$__m_D/b"
__m_s b >|"$__m_D/b"
__m_p=$PWD __m_t=$'\037'
[[ ! -f $__m_D/tools ]] || __m_i
[[ $__m_p == *[$'\036\037']* || ${#__m_p} -gt 1024 ]] && __m_p=
builtin printf '\036@NONCE@:\036' >&9
builtin printf '\036@NONCE@:%s:%s:%s\037%s%s\036' $$ "$__m_k" "$__m_g" "$__m_p" "$__m_t" >&8
builtin unset __m_k __m_g __m_p __m_t
} 2>&6
