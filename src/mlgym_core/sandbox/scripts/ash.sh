readonly __m_D=@STATE@
__m_q() { local s=$1 o=; while :; do case $s in *\'*) o="$o${s%%\'*}'\\''"; s=${s#*\'};; *) break;; esac; done; printf "'%s'" "$o$s"; }
__m_s() { printf 'cd -- '; __m_q "$PWD"; printf ' || __m_g=gone\numask '; umask; export -p; printf '__m_k=%s\n' "$1"; }
__m_o() { [ -f "$__m_D/$1" ] || [ ! -e "$__m_D/$1" ] || rm -rf "$__m_D/$1"; }
__m() { local r=$?; set +exuvfC; unset IFS; printf '\036%s:\036' "$1" >&9; printf '\036%s:%d:%d\036' "$1" "$r" $$ >&8; __m_o "$2"; __m_s "$2" >|"$__m_D/$2"; return "$r"; }
__m_x() { set +exuvfC; __m_o x; __m_s x >|"$__m_D/x"; }
trap __m_x EXIT
{
mkdir -p "$__m_D"
rm -rf "$__m_D/x" "$__m_D/b"
__m_s b >|"$__m_D/b"
printf '\036@NONCE@:\036' >&9
printf '\036@NONCE@:%s:%s:%s\036' $$ "$__m_k" "$__m_g" >&8
unset __m_k __m_g
} 2>&6
