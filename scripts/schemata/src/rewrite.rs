//! One source file with all its mutants: `a + b` becomes `(if crate::mutant(7) { (a) - (b) } else { a + b })`.

use crate::Mutant;
use proc_macro2::{LineColumn, Span};
use std::{collections::BTreeSet, ops::Range};
use syn::{spanned::Spanned, visit::Visit};

/// A place in the original text, and what stands there instead.
struct Edit {
    at: Range<usize>,
    /// Before what was there (with the edits inside it), and after it.
    before: Vec<Piece>,
    after: String,
    ids: Vec<usize>,
    /// What was there is gone.
    is_removal: bool,
}

enum Piece {
    Text(String),
    /// What only this mutant has.
    Of(usize, String),
}

/// A file rewritten.
pub struct Rewritten {
    pub text: String,
    /// What of the text belongs to which mutants; the closest comes last.
    pub regions: Vec<(Range<usize>, Vec<usize>)>,
    pub made: BTreeSet<usize>,
    /// Mutants in what is evaluated by the compiler, where nothing can be chosen at run time, and in seeded mistakes.
    pub constant: BTreeSet<usize>,
}

/// Rewrites `source`, with the mutants of it by their ids. A `const fn` becomes a function of run time, but for those in
/// `kept_const`.
pub fn rewrite(
    source: &str,
    mutants: &[(usize, &Mutant)],
    kept_const: &BTreeSet<String>,
) -> syn::Result<Rewritten> {
    let file = syn::parse_file(source)?;
    let mut finder =
        Finder { source, mutants, kept_const, in_constant: 0, edits: Vec::new(), constant: BTreeSet::new() };
    finder.visit_file(&file);
    let Finder { mut edits, constant, .. } = finder;
    edits.sort_by_key(|edit| (edit.at.start, usize::MAX - edit.at.end));
    let mut out = Rewritten { text: String::new(), regions: Vec::new(), made: BTreeSet::new(), constant };
    out.made = edits.iter().flat_map(|edit| edit.ids.iter().copied()).collect();
    render(source, 0..source.len(), &mut edits.iter().peekable(), &mut out);
    Ok(out)
}

fn render<'e>(
    source: &str,
    at: Range<usize>,
    edits: &mut std::iter::Peekable<impl Iterator<Item = &'e Edit>>,
    out: &mut Rewritten,
) {
    let mut done = at.start;
    while let Some(edit) = edits.next_if(|edit| edit.at.end <= at.end) {
        out.text += &source[done..edit.at.start];
        let (start, region) = (out.text.len(), out.regions.len());
        out.regions.push((start..start, edit.ids.clone()));
        for piece in &edit.before {
            match piece {
                Piece::Text(text) => out.text += text,
                Piece::Of(id, text) => {
                    let start = out.text.len();
                    out.text += text;
                    out.regions.push((start..out.text.len(), vec![*id]));
                }
            }
        }
        if !edit.is_removal {
            render_inside(source, edit.at.clone(), edits, out);
        }
        out.text += &edit.after;
        out.regions[region].0.end = out.text.len();
        done = edit.at.end;
    }
    out.text += &source[done..at.end];
}

// Apart, so that the compiler is not asked for an iterator of iterators without end.
fn render_inside<'e>(
    source: &str,
    at: Range<usize>,
    edits: &mut std::iter::Peekable<impl Iterator<Item = &'e Edit>>,
    out: &mut Rewritten,
) {
    render(source, at, edits, out);
}

struct Finder<'a> {
    source: &'a str,
    mutants: &'a [(usize, &'a Mutant)],
    kept_const: &'a BTreeSet<String>,
    in_constant: usize,
    edits: Vec<Edit>,
    constant: BTreeSet<usize>,
}

impl<'a> Finder<'a> {
    /// The mutants of a kind that change what begins at `start`; none where the compiler evaluates.
    fn at(&mut self, genre: &str, start: LineColumn) -> Vec<(usize, &'a Mutant)> {
        let start = (start.line, start.column + 1);
        let found: Vec<_> =
            self.mutants.iter().copied().filter(|(_, m)| m.genre == genre && m.start == start).collect();
        if self.in_constant > 0 {
            self.constant.extend(found.iter().map(|(id, _)| id));
            return Vec::new();
        }
        found
    }

    fn text(&self, span: Span) -> &'a str {
        &self.source[span.byte_range()]
    }

    fn edit(&mut self, at: Range<usize>, alternatives: Vec<(usize, String)>) {
        if alternatives.is_empty() {
            return;
        }
        let ids = alternatives.iter().map(|(id, _)| *id).collect();
        let mut before = vec![Piece::Text("(".into())];
        for (id, text) in alternatives {
            before.push(Piece::Of(id, format!("if crate::mutant({id}) {{ {text} }} else ")));
        }
        before.push(Piece::Text("{ ".into()));
        self.edits.push(Edit { at, before, after: " })".into(), ids, is_removal: false });
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        self.visit_signature(signature);
        let mut constant = 0;
        if let Some(keyword) = signature.constness {
            constant = usize::from(self.kept_const.contains(&signature.ident.to_string()));
            if constant == 0 {
                let at = keyword.span().byte_range();
                let (before, after) = (Vec::new(), String::new());
                self.edits.push(Edit { at, before, after, ids: Vec::new(), is_removal: true });
            }
        }
        self.in_constant += constant;
        if let Some(first) = block.stmts.first() {
            let found = self.at("FnValue", first.span().start());
            if !found.is_empty() {
                let at = block.brace_token.span.open().byte_range().end;
                let output = match &signature.output {
                    syn::ReturnType::Type(_, output) => self.text(output.span()),
                    syn::ReturnType::Default => "()",
                };
                let text = |id: &usize, value: &str| match output.contains("impl ") {
                    true => format!(" if crate::mutant({id}) {{ return {value}; }}"),
                    // With its type, for of all results that do not fit the function's the compiler names the first.
                    false => {
                        format!(" if crate::mutant({id}) {{ let value: {output} = {value}; return value; }}")
                    }
                };
                let before = found.iter().map(|(id, m)| Piece::Of(*id, text(id, &m.replacement))).collect();
                let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
                // Where nothing changes, but an error may be due to a result that is not of the type.
                self.edits.push(Edit {
                    at: signature.span().byte_range().start..block.span().byte_range().end,
                    before: Vec::new(),
                    after: String::new(),
                    ids: ids.clone(),
                    is_removal: false,
                });
                self.edits.push(Edit { at: at..at, before, after: String::new(), ids, is_removal: false });
            }
        }
        self.visit_block(block);
        self.in_constant -= constant;
    }
}

/// Whether `let` is in a condition: it cannot stand in an operand.
fn has_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn is_mistake(expr: &syn::Expr) -> bool {
    matches!(expr, syn::Expr::Macro(call) if call.mac.path.is_ident("mistake"))
}

/// Whether only a seeded mistake comes to the right operand: `mistake!(A) && b`, `!mistake!(A) || b`.
fn is_decided_by_mistake(expr: &syn::ExprBinary) -> bool {
    match (&expr.op, &*expr.left) {
        (syn::BinOp::And(_), left) => is_mistake(left),
        (syn::BinOp::Or(_), syn::Expr::Unary(not)) => is_mistake(&not.expr),
        _ => false,
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.in_constant += 1;
        syn::visit::visit_item_const(self, item);
        self.in_constant -= 1;
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.in_constant += 1;
        syn::visit::visit_item_static(self, item);
        self.in_constant -= 1;
    }

    fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
        self.in_constant += 1;
        syn::visit::visit_impl_item_const(self, item);
        self.in_constant -= 1;
    }

    // What only a seeded mistake does, which tests/mistakes tries by itself.
    fn visit_expr_if(&mut self, expr: &'a syn::ExprIf) {
        let of_mistake = is_mistake(&expr.cond);
        self.in_constant += usize::from(of_mistake);
        self.visit_block(&expr.then_branch);
        self.in_constant -= usize::from(of_mistake);
        self.visit_expr(&expr.cond);
        if let Some((_, otherwise)) = &expr.else_branch {
            self.visit_expr(otherwise);
        }
    }

    fn visit_expr_const(&mut self, expr: &'a syn::ExprConst) {
        self.in_constant += 1;
        syn::visit::visit_expr_const(self, expr);
        self.in_constant -= 1;
    }

    fn visit_expr_repeat(&mut self, expr: &'a syn::ExprRepeat) {
        self.visit_expr(&expr.expr);
        self.in_constant += 1;
        self.visit_expr(&expr.len);
        self.in_constant -= 1;
    }

    fn visit_type(&mut self, ty: &'a syn::Type) {
        self.in_constant += 1;
        syn::visit::visit_type(self, ty);
        self.in_constant -= 1;
    }

    fn visit_expr_binary(&mut self, expr: &'a syn::ExprBinary) {
        let found = self.at("BinaryOperator", expr.op.span().start());
        if has_let(&expr.left) || has_let(&expr.right) {
            self.constant.extend(found.iter().map(|(id, _)| id));
        } else {
            let (left, right) = (self.text(expr.left.span()), self.text(expr.right.span()));
            let assigns = self.text(expr.op.span()).ends_with('=')
                && !["==", "!=", "<=", ">="].contains(&self.text(expr.op.span()));
            let alternatives = found
                .iter()
                .map(|(id, m)| match assigns {
                    true => (*id, format!("{left} {} ({right})", m.replacement)),
                    false => (*id, format!("({left}) {} ({right})", m.replacement)),
                })
                .collect();
            self.edit(expr.span().byte_range(), alternatives);
        }
        self.visit_expr(&expr.left);
        let of_mistake = is_decided_by_mistake(expr);
        self.in_constant += usize::from(of_mistake);
        self.visit_expr(&expr.right);
        self.in_constant -= usize::from(of_mistake);
    }

    fn visit_expr_unary(&mut self, expr: &'a syn::ExprUnary) {
        let found = self.at("UnaryOperator", expr.op.span().start());
        let operand = self.text(expr.expr.span());
        self.edit(expr.span().byte_range(), found.iter().map(|(id, _)| (*id, operand.to_owned())).collect());
        syn::visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        let deleted = self.at("MatchArm", arm.span().start());
        match &arm.guard {
            Some((_, guard)) => {
                let replaced = self.at("MatchArmGuard", guard.span().start());
                if has_let(guard) {
                    self.constant.extend(deleted.iter().chain(&replaced).map(|(id, _)| id));
                } else if !(deleted.is_empty() && replaced.is_empty()) {
                    let mut before: Vec<_> = deleted
                        .iter()
                        .chain(replaced.iter().filter(|(_, m)| m.replacement == "false"))
                        .map(|(id, _)| Piece::Of(*id, format!("!crate::mutant({id}) && ")))
                        .collect();
                    before.push(Piece::Text("(".into()));
                    before.extend(
                        replaced
                            .iter()
                            .filter(|(_, m)| m.replacement == "true")
                            .map(|(id, _)| Piece::Of(*id, format!("crate::mutant({id}) || "))),
                    );
                    before.push(Piece::Text("(".into()));
                    let ids = deleted.iter().chain(&replaced).map(|(id, _)| *id).collect();
                    self.edits.push(Edit {
                        at: guard.span().byte_range(),
                        before,
                        after: "))".into(),
                        ids,
                        is_removal: false,
                    });
                }
            }
            None => {
                let at = arm.pat.span().byte_range().end;
                for (id, _) in deleted {
                    let before = vec![Piece::Of(id, format!(" if !crate::mutant({id})"))];
                    self.edits.push(Edit {
                        at: at..at,
                        before,
                        after: String::new(),
                        ids: vec![id],
                        is_removal: false,
                    });
                }
            }
        }
        syn::visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expr: &'a syn::ExprStruct) {
        if let Some(rest) = &expr.rest {
            let (path, rest) = (self.text(expr.path.span()), self.text(rest.span()));
            for field in &expr.fields {
                let found = self.at("StructField", field.span().start());
                let name = self.text(field.member.span());
                let taken = format!("{{ let base: {path} = {rest}; base.{name} }}");
                if field.colon_token.is_some() {
                    let alternatives = found.iter().map(|(id, _)| (*id, taken.clone())).collect();
                    self.edit(field.expr.span().byte_range(), alternatives);
                } else if let [(id, _)] = found[..] {
                    let at = field.span().byte_range();
                    let before =
                        vec![Piece::Of(id, format!("{name}: if crate::mutant({id}) {taken} else {{ "))];
                    self.edits.push(Edit {
                        at,
                        before,
                        after: " }".into(),
                        ids: vec![id],
                        is_removal: false,
                    });
                }
            }
        }
        syn::visit::visit_expr_struct(self, expr);
    }
}
