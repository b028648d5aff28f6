# Functions are saved with every action, so there are two only.
builtin readonly __m_D=@STATE@
__m_s() { builtin printf 'cd -- %q || __m_g=gone\n' "$PWD"; builtin umask -p; builtin export -p; builtin declare -f; builtin printf '__m_k=%s\n' "$1"; }
# Where "builtin" is not what it should be, the expansion of an unset variable ends the shell: nothing else is sure to.
__m() { builtin local __m_r=$? __m_w; [[ ${__m_r?} ]]; builtin set +exuvfC; IFS=$' \t\n'; builtin eval && ! builtin declare -F eval >&6 || { __m_w=:eval; builtin unset -f eval; }; builtin printf '\036%s:\036' "$1" >&9; builtin printf '\036%s:%d:%d%s\036' "$1" "$__m_r" $$ "$__m_w" >&8; [[ -f $__m_D/$2 || ! -e $__m_D/$2 ]] || builtin command -p rm -rf "$__m_D/$2"; __m_s "$2" >|"$__m_D/$2"; [[ ! $__m_w ]] || builtin exit; builtin return "$__m_r"; }
builtin readonly -f __m_s __m
builtin trap 'builtin printf -v __m_r x; [[ ${__m_r?the shell cannot work without its own "builtin"} ]]; builtin set +exuvfC; [[ -f $__m_D/x || ! -e $__m_D/x ]] || builtin command -p rm -rf "$__m_D/x"; __m_s x >|"$__m_D/x"' EXIT
{
builtin command -p mkdir -p "$__m_D"
builtin command -p rm -rf "$__m_D/x" "$__m_D/b"
__m_s b >|"$__m_D/b"
builtin printf '\036@NONCE@:\036' >&9
builtin printf '\036@NONCE@:%s:%s:%s\036' $$ "$__m_k" "$__m_g" >&8
builtin unset __m_k __m_g
} 2>&6
